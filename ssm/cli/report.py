"""ssm report: one self-contained HTML page from a results folder.

The page needs no network and no other file to be read; its links lead to the tables, pictures and specs beside it.

example:
  ssm report results/smoke --out results/smoke/report/index.html --figures lg_fig5 lg_fig1
"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "build the HTML report of a results folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a scale's results, such as results/smoke")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.html", help="the page")
    parser.add_argument("--figures", nargs="+", metavar="TARGET", help="only these figures (default: all planned ones)")


def run(args: argparse.Namespace) -> int:
    import sys

    from ssm.report.build import build_report

    build_report(args.results, args.out, args.figures)
    print(f"wrote {args.out}", file=sys.stderr)
    return 0
