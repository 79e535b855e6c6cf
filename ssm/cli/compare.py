"""`ssm compare`: whether results agree with the committed reference results."""

from __future__ import annotations

import argparse
from pathlib import Path

from ssm.cli import path, positive

HELP = "tell whether results come to the verdicts of the committed reference results, one line a claim"
EPILOG = """\
Reads the verdicts of a results folder and reference results (`ssm reference`). A claim agrees where its verdict is
the same and its estimate moved by no more than the tolerance: a share of the reference's estimate, or of half its
interval where that is larger. The ends of the interval may move by as much, or by a quarter of its half. Numbers that
are zero but for rounding agree. Machines that round otherwise train other weights; where not even the last bit
differs, it says "bitwise". Figures that are not made here, or have no reference, are named and not compared. Exit
code 1 where a claim disagrees. Another version of Python has another standard library, which is the text at the scale
smoke: that and another torch are said before the last line.

examples:
  ssm compare results/smoke
  ssm compare results/smoke reports/smoke --tolerance 0.1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=path, metavar="RESULTS", help="a scale's results, such as results/smoke")
    parser.add_argument(
        "reference", nargs="?", type=path, metavar="REFERENCE", help="default: the folder of that name in reports"
    )
    parser.add_argument("--tolerance", type=positive(float), metavar="SHARE", help="default: 0.02")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import TableError
    from ssm.base.names import natural
    from ssm.report.compare import TOLERANCE, compare, unlike
    from ssm.report.reference import read_references

    folder = args.reference or Path("reports") / args.results.name
    references = read_references(folder)
    made = sorted((path.stem for path in (args.results / "verdicts").glob("*.parquet")), key=natural)
    if not references or not set(made) & set(references):
        what = "no reference results" if not references else f"of its figures none is finished in {args.results}"
        raise TableError(f"{folder}: {what}")
    found = compare(args.results, references, args.tolerance or TOLERANCE)
    widths = [max(len(getattr(one, name)) for one in found) for name in ("target", "claim")]
    for one in found:
        mark = "agrees " if one.agrees else "DIFFERS"
        print(f"{one.target:<{widths[0]}}  {one.claim:<{widths[1]}}  {mark}  {one.words}")
    for what, names in (
        ("not made here", [target for target in references if target not in made]),
        ("without a reference", [target for target in made if target not in references]),
    ):
        if names:
            print(f"{what}, not compared: {', '.join(names)}")
    for line in unlike(args.results, references):
        print(line)
    agree, bitwise = (sum(getattr(one, name) for one in found) for name in ("agrees", "bitwise"))
    print(f"{agree} of {len(found)} claims agree with {folder}, {bitwise} of them bitwise")
    return 0 if agree == len(found) else 1
