"""Whether another build comes to the same verdicts as the reference.

A machine that rounds otherwise, or adds up in another order, trains other weights. So a claim agrees where its verdict
is the same one, and its estimate moved by no more than a tolerance: a share of the estimate, or of half its interval
where that is larger, for estimates may be near zero. Where estimate and interval are the very same numbers, it says so.
Of what is made of times the verdict counts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ssm.base.errors import TableError
from ssm.base.tables import VERDICTS, read_provenance, read_table
from ssm.claims.verdict import REHEARSAL
from ssm.claims.words import number
from ssm.report.reference import Judged, Reference, judged, made_with

CONSEQUENCES = {
    "python": ("Python", "the text, the source of its standard library, is another"),
    "torch": ("torch", "it may round otherwise"),
}
TOLERANCE = 0.02  # a thousand times what AVX2 in place of AVX-512 moves a ratio of lg_fig5


@dataclass(frozen=True)
class Comparison:
    """A claim here and in the reference."""

    target: str
    claim: str
    agrees: bool
    words: str
    bitwise: bool = False


def compare(results: Path, references: Mapping[str, Reference], tolerance: float = TOLERANCE) -> list[Comparison]:
    """Every claim of the figures that both have, here and in the reference.

    Raises:
        TableError: a table of verdicts is broken, or was rehearsed.
    """
    found = []
    for target, reference in references.items():
        path = results / "verdicts" / f"{target}.parquet"
        if not path.is_file():
            continue
        rows = list(read_table(path, VERDICTS).iter_rows(named=True))
        if any(row["reason"] == REHEARSAL for row in rows):
            raise TableError(f"{path}: a rehearsal, whose numbers mean nothing: nothing to compare")
        here = {row["claim"]: judged(row) for row in rows}
        there = {one.claim: one for one in reference.claims}
        for claim in dict.fromkeys([*there, *here]):
            one, other = here.get(claim), there.get(claim)
            agrees, words = _compared(one, other, tolerance)
            bitwise = agrees and one is not None and other is not None and one.numbers == other.numbers
            found.append(Comparison(target, claim, agrees, words, bitwise))
    return found


def unlike(results: Path, references: Mapping[str, Reference]) -> list[str]:
    """What the figures of both were made with that differs and moves numbers, in a line each.

    Raises:
        TableError: a table of verdicts is broken.
    """
    pairs = {}  # of (what, here, there), each once
    for target, reference in references.items():
        path = results / "verdicts" / f"{target}.parquet"
        here = made_with(read_provenance(path)) if path.is_file() else {}
        for key in CONSEQUENCES:
            versions = here.get(key), reference.made.get(key)
            if all(versions) and versions[0] != versions[1]:
                pairs[key, *versions] = CONSEQUENCES[key]
    return [f"{what} is {here} here, {there} in the reference: {so}" for (_, here, there), (what, so) in pairs.items()]


def _compared(here: Judged | None, there: Judged | None, tolerance: float) -> tuple[bool, str]:
    if here is None or there is None:
        return False, "is judged here, and not in the reference" if here else "is in the reference, and not judged here"
    if here.expected != there.expected:
        return False, f"expects {here.expected} here, {there.expected} in the reference"
    if here.number != there.number:
        return False, "is decided by other seeds, arms or measurements than in the reference"
    both = f"{_result(here)} here, {_result(there)} in the reference"
    if here.verdict != there.verdict:
        return False, both
    if there.timed:
        return True, f"{both}: a time, of which the verdict counts alone"
    if here.numbers == there.numbers:
        return True, f"{_result(here)}, bitwise"
    if here.estimate is None or there.estimate is None or there.low is None or there.high is None:
        return False, both
    size = max(abs(there.estimate), (there.high - there.low) / 2)
    moved = abs(here.estimate - there.estimate)
    return moved <= tolerance * size, f"{both}: moved by {_share(moved, size)}"


def _result(one: Judged) -> str:
    return f"{one.verdict} {number(one.estimate)}" if one.estimate is not None else f"{one.verdict}, no number"


def _share(moved: float, size: float) -> str:
    return f"{100 * moved / size:.2g}%" if size else "infinitely much"
