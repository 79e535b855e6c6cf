"""`ssm judge`: verdicts on the claims of one figure."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import path, table

HELP = "judge the claims of one figure from its tables"
EPILOG = """\
The command reads a planned figure and its tables. `ssm plan --write` writes
the figure, and `ssm evaluate` the tables. It writes one row for each claim:
the estimate with its 95% interval, the expected region, the verdict, and the
reason. A verdict is confirmed, refuted or not decided.

example:
  ssm judge results/smoke/specs/figures/lg_fig5.json \\
    --tables results/smoke/tables --out results/smoke/verdicts/lg_fig5.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the planned figure")
    parser.add_argument("--tables", type=path, required=True, metavar="DIR", help="the folder of its tables")
    parser.add_argument("--out", type=table, required=True, metavar="FILE.parquet", help="the table of verdicts")


def run(args: argparse.Namespace) -> int:
    from ssm.base.provenance import provenance
    from ssm.base.tables import VERDICTS, write_table
    from ssm.claims.verdict import judge
    from ssm.claims.words import totals
    from ssm.figures.figure import FigureTask

    task = FigureTask.load(args.spec)
    verdicts = judge(task, args.tables)
    write_table(verdicts, VERDICTS, args.out, provenance(figure=task.content(), tables=list(task.table_ids)))
    print(f"{task.target}: {totals(verdicts['verdict'])}", file=sys.stderr)
    return 0
