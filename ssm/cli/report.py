"""`ssm report`: self-contained HTML pages from a results folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import path

HELP = "build the HTML report of a results folder: a front page, and one page for each paper"
EPILOG = """\
Reads what `ssm plan --write`, `ssm plot` and `ssm judge` wrote into a results folder; writes index.html, which opens
with an overview of all figures and claims, and a page for each paper. Each is one file that needs no network and no
other file to be read; links lead from one to the other, and to the tables, images and specs beside them.

A figure that is not made shows its reference result, if there is one, and is labelled as such. Claims that are made are
compared with the reference (`ssm compare`).

example:
  ssm report results/smoke --out results/smoke/report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=path, metavar="RESULTS", help="a scale's results, such as results/smoke")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of the pages")
    parser.add_argument(
        "--front", nargs="+", metavar="TARGET", help="on the front page in full (default: the headline figures)"
    )
    parser.add_argument(
        "--figures",
        nargs="+",
        default=(),
        metavar="TARGET",
        help="these have to be finished (default: what is, is shown)",
    )
    parser.add_argument(
        "--reference",
        type=path,
        metavar="DIR",
        help="reference results (default: the folder of the results' name in reports, if there is one)",
    )


def run(args: argparse.Namespace) -> int:
    from ssm.report.build import build_report

    given = args.reference or Path("reports") / args.results.name
    reference = given if args.reference or any(given.glob("*.json")) else None
    results = build_report(args.results, args.out, args.front, args.figures, reference)
    absent = ", ".join(f"{target} ({absent.state})" for target, absent in results.unfinished.items())
    if absent:
        print(f"planned, and not made: {absent}", file=sys.stderr)
    print(f"wrote {args.out / 'index.html'} and one page for each paper next to it", file=sys.stderr)
    return 0
