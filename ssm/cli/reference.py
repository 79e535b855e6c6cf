"""`ssm reference`: the committed reference results, and the tables of them in README files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import add_results, path

HELP = "take finished figures as the committed reference results"
EPILOG = """\
For every finished figure of RESULTS, the command writes its picture, and a
file with one line for each claim, into the folder --out. The reference of an
unfinished figure stays as it was.

Then, and also without RESULTS, it writes two tables of all reference results.
The table in README.md counts the statements that held. The table in the
README.md next to --out lists every verdict.

examples:
  ssm reference results/smoke  take the finished figures, and write both tables
  ssm reference --check        write nothing; are both tables up to date?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser, nargs="?")
    parser.add_argument(
        "--out",
        type=path,
        default=Path("reports/smoke"),
        metavar="DIR",
        help="the folder of reference results (default: reports/smoke)",
    )
    parser.add_argument(
        "--readme",
        type=path,
        default=Path("README.md"),
        metavar="FILE",
        help="the project's README (default: README.md)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 2 if a table is out of date")


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
    outdated = {file: text for file, (before, text) in readmes(args.out, args.readme).items() if text != before}
    for file, text in outdated.items():
        if args.check:
            problem = f"{file}: its table does not agree with {args.out}; `ssm reference` writes it"
            print(f"ssm reference: {problem}", file=sys.stderr)
        else:
            write_text(file, text)
            print(f"wrote the table in {file}")
    if args.check and not outdated:
        print("the tables agree with the reference results")
    return 2 if args.check and outdated else 0
