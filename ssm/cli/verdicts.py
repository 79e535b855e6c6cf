"""ssm verdicts: every verdict of a results folder, one line each.

Columns: figure, claim, what the paper says, our number with its 95% interval and the region that confirms, verdict.

example:
  ssm verdicts results/smoke
"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "print the verdicts of a results folder, one line a claim"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a scale's results, such as results/smoke")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import TableError
    from ssm.base.tables import VERDICTS, read_table
    from ssm.claims.words import natural, verdict_lines

    files = sorted((args.results / "verdicts").glob("*.parquet"), key=lambda path: natural(path.stem))
    if not files:
        raise TableError(f"{args.results / 'verdicts'}: no verdicts here; `ssm judge` writes them")
    rows = [row for path in files for row in read_table(path, VERDICTS).iter_rows(named=True)]
    print("\n".join(verdict_lines(rows)))
    return 0
