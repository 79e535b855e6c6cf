"""`ssm report`: one self-contained HTML page from a results folder."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import path

HELP = "build the HTML report of a results folder"
EPILOG = """\
Reads what `ssm plan --write`, `ssm plot` and `ssm judge` wrote into a results folder; writes one page that needs no
network and no other file to be read. Its links lead to the tables, pictures and specs beside it.

example:
  ssm report results/smoke --out results/smoke/report/index.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=path, metavar="RESULTS", help="a scale's results, such as results/smoke")
    parser.add_argument("--out", type=path, required=True, metavar="FILE.html", help="the page")
    parser.add_argument("--figures", nargs="+", metavar="TARGET", help="only these (default: all finished ones)")


def run(args: argparse.Namespace) -> int:
    from ssm.report.build import build_report

    results = build_report(args.results, args.out, args.figures)
    if results.left_out:
        print(f"left out, not finished: {', '.join(results.left_out)}", file=sys.stderr)
    print(f"wrote {args.out}", file=sys.stderr)
    return 0
