"""`ssm reference`: the committed reference results, and the tables of them in README files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import path

HELP = "take finished figures as the committed reference results, or check the tables of these in README files"
EPILOG = """\
Reads a results folder. For every finished figure, writes its picture and a file with one line for each claim into the
folder of reference results. Then, or at once without RESULTS, writes two tables of all reference results: how many
statements held into README.md, and every verdict into the README.md next to that folder. What is not finished keeps its
reference.

examples:
  ssm reference results/smoke    the finished figures of results/smoke into reports/smoke, and both tables
  ssm reference --check          writes nothing: do the tables say what the reference results say?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="?", type=path, metavar="RESULTS", help="a scale's results (default: none)")
    parser.add_argument(
        "--out", type=path, default=Path("reports/smoke"), metavar="DIR", help="the folder (default: reports/smoke)"
    )
    parser.add_argument(
        "--readme", type=path, default=Path("README.md"), metavar="FILE", help="the project's (default: README.md)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 2 where a table is another")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import ConfigError
    from ssm.base.files import write_text
    from ssm.report.reference import write_reference
    from ssm.report.verdict_tables import readmes

    if args.check and args.results:
        raise ConfigError("give either RESULTS or --check: a check writes nothing")
    if args.results:
        targets = write_reference(args.results, args.out)
        print(f"wrote {args.out}: {', '.join(targets)}")
    stale = {file: text for file, (before, text) in readmes(args.out, args.readme).items() if text != before}
    for file, text in stale.items():
        if args.check:
            problem = f"{file}: its table is not that of {args.out}; `ssm reference` writes it"
            print(f"ssm reference: {problem}", file=sys.stderr)
        else:
            write_text(file, text)
            print(f"wrote the table in {file}")
    if args.check and not stale:
        print("the tables say what the reference results say")
    return 2 if args.check and stale else 0
