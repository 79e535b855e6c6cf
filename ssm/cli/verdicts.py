"""`ssm verdicts`: every verdict of a results folder, one line each."""

from __future__ import annotations

import argparse
import shutil
import sys

from ssm.cli import path

HELP = "print the verdicts of a results folder, one line a claim"
EPILOG = """\
One line a claim: what the paper says, our number with its 95% interval, the region that confirms, the verdict, and why
where there is no number. At a terminal lines are cut to its width; into a pipe or a file they are written whole.

example:
  ssm verdicts results/smoke
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=path, metavar="RESULTS", help="a scale's results, such as results/smoke")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import TableError
    from ssm.base.names import natural
    from ssm.base.tables import VERDICTS, read_table
    from ssm.claims.words import verdict_lines

    files = sorted((args.results / "verdicts").glob("*.parquet"), key=lambda path: natural(path.stem))
    if not files:
        raise TableError(f"{args.results / 'verdicts'}: no verdicts here; `ssm judge` writes them")
    rows = [row for path in files for row in read_table(path, VERDICTS).iter_rows(named=True)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(verdict_lines(rows, width)))
    return 0
