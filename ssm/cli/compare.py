"""`ssm compare`: whether results agree with the committed reference results."""

from __future__ import annotations

import argparse
from collections import Counter

from ssm.cli import add_results, path, positive, reference_of, verdict_files

HELP = "compare your results with the committed reference results"
EPILOG = """\
The command reads the verdicts of RESULTS and of the reference results, and
prints one line for each claim. Run `make figures` before it.

A claim agrees if its verdict is the same, and its estimate moved by at most
the tolerance. The tolerance is a share of the estimate, or of half the 95%
interval if that is larger. The ends of the interval may move by the same
amount, or by a quarter of half the interval. Numbers that differ only by
rounding agree; one of the two verdicts may then be "not decided". A claim can
say how much rounding can explain (`rounding` in the figure file). For a time,
only the verdict is compared, and "not decided" agrees with every verdict.

Training amplifies rounding. So with another processor or torch, the same
seed can end at other weights. A claim that moved by more than the tolerance
is then "consistent" if both 95% intervals together allow the difference. One
verdict may be "not decided". Another commit alone is no reason.

Otherwise a claim differs. It also differs if the region, the seeds, the arms
or the measurements are not those of the reference. A claim that only one side
has is not compared.

Except at the scale paper, most texts are Python's standard library. So another
version of Python means another text; the last lines then say so. Numbers of
such a text are then not compared: a claim agrees, unless one verdict is
"confirmed" and the other is "refuted".

Figures that only one side has are named, and not compared.
Exit code: 0 if all claims agree or are consistent, 1 if a claim differs or is
on one side only.

examples:
  ssm compare results/smoke
  ssm compare results/smoke reports/smoke --tolerance 0.1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    parser.add_argument(
        "reference",
        nargs="?",
        type=path,
        metavar="REFERENCE",
        help="reference results (default: reports/NAME, with the name of the folder RESULTS)",
    )
    parser.add_argument(
        "--tolerance", type=positive(float), metavar="SHARE", help="how far an estimate may move (default: 0.02)"
    )


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import TableError
    from ssm.report.compare import AGREES, CONSISTENT, DIFFERS, ONE_SIDE, TOLERANCE, compare, unlike
    from ssm.report.reference import read_references

    folder = args.reference or reference_of(args.results)
    references = read_references(folder)
    finished = [path.stem for path in verdict_files(args.results)]
    if not references:
        hint = "" if args.reference else f"; start the command in the clone, or name their folder after {args.results}"
        raise TableError(f"{folder}: no reference results{hint}")
    if not set(finished) & set(references):
        raise TableError(f"{folder}: none of its figures is finished in {args.results}")
    comparisons = compare(args.results, references, args.tolerance or TOLERANCE)
    widths = [max((len(getattr(each, name)) for each in comparisons), default=0) for name in ("target", "claim")]
    for each in comparisons:
        print(f"{each.target:<{widths[0]}}  {each.claim:<{widths[1]}}  {each.result:<{len(CONSISTENT)}}  {each.words}")
    for what, names in (
        ("not made here", [target for target in references if target not in finished]),
        ("without a reference", [target for target in finished if target not in references]),
    ):
        if names:
            print(f"{what}, not compared: {', '.join(names)}")
    for line in unlike(args.results, references):
        print(line)
    results = Counter(each.result for each in comparisons)
    bitwise = sum(each.bitwise for each in comparisons)
    alone = f", {results[ONE_SIDE]} more are on one side only" if results[ONE_SIDE] else ""
    print(
        f"{results[AGREES]} of {len(comparisons) - results[ONE_SIDE]} claims agree with {folder} "
        f"({bitwise} of them bitwise), {results[CONSISTENT]} are consistent, {results[DIFFERS]} differ{alone}"
    )
    return 1 if results[DIFFERS] or results[ONE_SIDE] else 0
