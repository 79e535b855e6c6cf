"""`ssm verdicts`: every verdict of a results folder, in one line each."""

from __future__ import annotations

import argparse
import shutil
import sys

from ssm.cli import add_results, say, verdict_files

HELP = "print the verdicts of a results folder"
EPILOG = """\
The command prints one line for each claim: its name in the figure file, what
the paper reports, our number with its 95% interval and its method, the region
that confirms the claim, and the verdict. If there is no number, the line says
why. In a terminal, lines are cut to its width, and the method may be left out.
In a pipe or a file, they are complete.

A star marks a verdict that does not survive the correction for the number of
tests of its paper. Only tests of the finished figures in RESULTS count here.
With more figures, other verdicts may get a star.

examples:
  ssm verdicts results/smoke
  ssm verdicts results/smoke --seeds  with the number of every seed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    parser.add_argument("--seeds", action="store_true", help="print also the number of every seed")


def run(args: argparse.Namespace) -> int:
    from ssm.claims.significance import weak_verdicts
    from ssm.claims.terminal import verdict_lines
    from ssm.claims.verdict import read_verdicts
    from ssm.claims.words import seed_words

    rows = [row for path in verdict_files(args.results) for row in read_verdicts(path)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(verdict_lines(rows, width, weak_verdicts(rows)))
    if args.seeds:
        say(f"{row['target']}  {row['claim']}: {seed_words(row)}" for row in rows)
    return 0
