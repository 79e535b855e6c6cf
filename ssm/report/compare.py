"""Whether another build comes to the same verdicts as the reference.

A machine that rounds otherwise, or adds up in another order, trains other weights. So a claim agrees where its verdict
is the same one, and neither its estimate nor an end of its interval moved by more than a tolerance: a share of the
estimate, or of half the interval where that is larger, for estimates may be near zero. Numbers that rounding alone
separates agree too (`Quantity.rounding`): both are zero but for rounding, say. Where all three are the very same
numbers, it says so. Of what is made of times the verdict counts alone, and only confirmed and refuted disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ssm.base.errors import TableError
from ssm.base.tables import VERDICTS, read_provenance, read_table
from ssm.claims.verdict import REHEARSAL
from ssm.claims.words import OPEN, number
from ssm.report.reference import Judged, Reference, judged, made_with

CONSEQUENCES = {
    "python": ("Python", "the text, the source of its standard library, is another"),
    "torch": ("torch", "it may round otherwise"),
}
NUMBERS = ("the estimate", "the lower end", "the upper end")  # `Judged.numbers` in words
TOLERANCE = 0.02  # a thousand times what AVX2 in place of AVX-512 moves a ratio of lg_fig5


@dataclass(frozen=True)
class Comparison:
    """A claim here and in the reference."""

    target: str
    claim: str
    agrees: bool
    words: str
    bitwise: bool = False


@dataclass(frozen=True)
class Move:
    """A number of a claim that is another one here than in the reference."""

    what: str
    by: float
    size: float  # that a share of it is a share of


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
    furthest = _furthest(here, there)
    if there.timed and OPEN in (here.verdict, there.verdict):
        return True, f"{both}: a time, which a busy machine leaves undecided"
    if here.verdict != there.verdict:
        rounded = furthest is not None and 0 < furthest.by <= there.rounding
        return False, f"{both}: rounding alone makes the difference" if rounded else both
    if there.timed:
        return True, f"{both}: a time, of which the verdict counts alone"
    if here.numbers == there.numbers:
        return True, f"{_result(here)}, bitwise"
    if furthest is None:
        return False, both
    if furthest.by <= there.rounding:
        return True, f"{both}: the same but for rounding"
    words = f"{both}: {furthest.what} moved by {_share(furthest.by, furthest.size)}"
    return furthest.by <= tolerance * furthest.size, words


def _furthest(here: Judged, there: Judged) -> Move | None:
    """Of an estimate and the ends of its interval the one that moved furthest; None where a number is missing."""
    ones, others = ([one for one in side.numbers if one is not None] for side in (here, there))
    if len(ones) < len(NUMBERS) or len(others) < len(NUMBERS):
        return None
    moves = [abs(one - other) for one, other in zip(ones, others, strict=True)]
    by = max(moves)
    estimate, low, high = others
    size = max(abs(estimate), (high - low) / 2)
    return Move(NUMBERS[moves.index(by)], by, size)


def _result(one: Judged) -> str:
    return f"{one.verdict} {number(one.estimate)}" if one.estimate is not None else f"{one.verdict}, no number"


def _share(moved: float, size: float) -> str:
    return f"{number(100 * moved / size)}%" if size else "infinitely much"
