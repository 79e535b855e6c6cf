"""`ssm report`: HTML pages of a results folder."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import add_config, add_results, path, reference_of

HELP = "write the HTML report of a results folder"
EPILOG = """\
The command reads what `ssm plan --write`, `ssm plot` and `ssm judge` wrote
into RESULTS. It writes index.html, which begins with an overview of all
figures and claims, and one page for each paper. Each page is one file and
needs no network. Links lead to the other pages, and to the tables, pictures
and specs in RESULTS.

findings.html has the sentences of synthesis.yaml in the config folder. Each
names the claims that it rests on, and is red without their support.

A figure that is not finished shows its reference result, if there is one, with
a label that says so. Finished claims are compared with the reference, as by
`ssm compare`.

example:
  ssm report results/smoke --out results/smoke/report
"""


MOST = 5  # unfinished figures that are named; the front page names all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of the pages")
    parser.add_argument(
        "--front",
        nargs="+",
        metavar="TARGET",
        help="figures that the front page shows in full (default: those with `headline: true`)",
    )
    parser.add_argument(
        "--figures", nargs="+", default=(), metavar="TARGET", help="fail if one of these figures is not finished"
    )
    parser.add_argument(
        "--reference",
        type=path,
        metavar="DIR",
        help="reference results (default: reports/NAME, with the name of the folder RESULTS)",
    )
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.base.counting import first_of
    from ssm.claims.synthesis import read_synthesis
    from ssm.report.build import build_report

    usual = reference_of(args.results)
    reference = args.reference or (usual if any(usual.glob("*.json")) else None)
    results = build_report(args.results, args.out, args.front, args.figures, reference, read_synthesis(args.config))
    by_state: dict[str, list[str]] = {}
    for target, absent in results.unfinished.items():
        by_state.setdefault(absent.state, []).append(target)
    if by_state:
        groups = "; ".join(f"{first_of(targets, MOST)} ({state})" for state, targets in by_state.items())
        print(f"planned, and not made: {groups}", file=sys.stderr)
    print(f"wrote {args.out / 'index.html'} and one page for each paper next to it", file=sys.stderr)
    return 0
