"""Compare verdicts with the reference.

A machine that rounds or adds in another order trains other weights. Therefore a claim agrees if its verdict is the same
and its estimate moved by no more than a tolerance. The tolerance is a share of the estimate or of half its interval,
whichever is larger, because an estimate may be near zero. The ends of the interval may move by the same amount, or by a
quarter of half the interval. Numbers that differ only by rounding agree too (`Judged.rounding`). If a bound lies
between them, one verdict may be "not decided"; "confirmed" and "refuted" always disagree.

Training amplifies rounding. So with another processor or torch, the same seed can end at other weights. A claim that
moved by more than the tolerance is then consistent if the estimates differ by no more than their 95% intervals allow.
One verdict may be "not decided". Another commit alone is no excuse: such a difference is to be explained.

For two kinds of claims, numbers are not compared, and only "confirmed" against "refuted" disagrees. These are claims
about times, and claims about models that read another text. Another Python version has another standard library, which
most figures read, except at the scale paper.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import TableError
from ssm.base.tables import read_provenance
from ssm.claims.statements import CONFIRMED, OPEN, REFUTED
from ssm.claims.verdict import DRY_RUN, read_verdicts
from ssm.claims.words import number
from ssm.figures.figure import FigureTask
from ssm.report.reference import Judged, Reference, judged, made_with
from ssm.specs.training import RunSpec

AGREES, CONSISTENT, DIFFERS, ONE_SIDE = "agrees", "consistent", "DIFFERS", "ONE SIDE"
CONSEQUENCES = {
    "python": ("Python", "the text is the source of its standard library, which differs"),
    "torch": ("torch", "it may round differently"),
    "processor": ("The processor", "it may round differently, and training amplifies this"),
}
NUMBERS = ("the estimate", "the lower end", "the upper end")  # `Judged.numbers` in words
ENDS = 0.25  # of half an interval: five seeds give a standard deviation only to about a third
TOLERANCE = 0.02  # AVX2 instead of AVX-512 moves a ratio of lg_fig5 by a thousandth of this


@dataclass(frozen=True)
class Comparison:
    """How a claim's verdict compares with the reference."""

    target: str
    claim: str
    result: str  # AGREES, CONSISTENT, DIFFERS, or ONE_SIDE: only one of both has the claim
    words: str
    bitwise: bool = False


@dataclass(frozen=True)
class Move:
    """How far a number of a claim is from the reference."""

    what: str
    by: float
    most: float  # the largest difference that agrees
    size: float  # `by` is reported as a share of this


def compare(results: Path, references: Mapping[str, Reference], tolerance: float = TOLERANCE) -> list[Comparison]:
    """Compare every claim of the figures that both have. A claim that only one of both has is listed, too.

    Raises:
        TableError: a table of verdicts is broken, or comes from a dry run.
    """
    found = []
    for target, reference in references.items():
        path = results / "verdicts" / f"{target}.parquet"
        if not path.is_file():
            continue
        rows = read_verdicts(path)
        if any(row["reason"] == DRY_RUN for row in rows):
            raise TableError(f"{path}: a dry run, whose numbers mean nothing; give results of a full run")
        made = made_with(read_provenance(path))
        other_text = _reads_another_text(results, target, made, reference)
        rounds_alike = all(made.get(key) == reference.made.get(key) for key in ("processor", "torch"))
        here = {row["claim"]: judged(row) for row in rows}
        there = {one.claim: one for one in reference.claims}
        for claim in dict.fromkeys([*there, *here]):
            one, other = here.get(claim), there.get(claim)
            result, words = _compared(one, other, tolerance, other_text, rounds_alike)
            bitwise = result == AGREES and one is not None and other is not None and one.numbers == other.numbers
            found.append(Comparison(target, claim, result, words, bitwise))
    return found


def unlike(results: Path, references: Mapping[str, Reference]) -> list[str]:
    """What differs between figures and their references, and can change numbers: a line for each version, and the code.

    Raises:
        TableError: a table of verdicts is broken.
    """
    pairs = {}  # of (what, here, there), each once
    commits = []  # of each figure: whether both have the same
    for target, reference in references.items():
        path = results / "verdicts" / f"{target}.parquet"
        here = made_with(read_provenance(path)) if path.is_file() else {}
        for key in CONSEQUENCES:
            versions = here.get(key), reference.made.get(key)
            if all(versions) and versions[0] != versions[1]:
                pairs[key, *versions] = CONSEQUENCES[key]
        if "commit" in here and "commit" in reference.made:
            commits.append(here["commit"] == reference.made["commit"])
    lines = [f"{what} is {here} here, {there} in the reference: {so}" for (_, here, there), (what, so) in pairs.items()]
    if not all(commits):
        others = f"{commits.count(False)} of {len(commits)} figures"
        lines.append(f"The reference of {others} was made with another commit: other code may round differently")
    return lines


def _reads_another_text(results: Path, target: str, made: Mapping[str, str], reference: Reference) -> bool:
    """Whether a figure's models read Python's standard library, and the reference was made with another Python."""
    planned = results / "specs" / "figures" / f"{target}.json"
    if made.get("python") == reference.made.get("python") or not planned.is_file():
        return False
    runs = {results / "specs" / "runs" / f"{series.run}.json" for series in FigureTask.load(planned).series}
    # After a change of the figure file, its new runs may not have been asked for yet.
    return any(RunSpec.load(run).data.sources.library for run in runs if run.is_file())


def _compared(
    here: Judged | None, there: Judged | None, tolerance: float, other_text: bool, rounds_alike: bool
) -> tuple[str, str]:
    """The result of the comparison, and why, in words."""
    if here is None or there is None:
        return ONE_SIDE, (
            "is judged here, and not in the reference" if here else "is in the reference, and not judged here"
        )
    if here.expected != there.expected:
        return DIFFERS, f"expects {here.expected} here, {there.expected} in the reference"
    if here.number != there.number:
        return DIFFERS, "has other seeds, arms or measurements than in the reference"
    both = f"{_result(here)} here, {_result(there)} in the reference"
    moves = _moves(here, there, tolerance)
    moved = here.numbers != there.numbers
    only_rounding = moved and bool(moves) and max(move.by for move in moves) <= there.rounding
    known = here.estimate is not None and there.estimate is not None
    contradict = {here.verdict, there.verdict} == {CONFIRMED, REFUTED}
    if other_text and not contradict:
        return AGREES, f"{both}: another text, so only a contradiction would disagree"
    if there.timed and known and OPEN in (here.verdict, there.verdict):
        return AGREES, f"{both}: a time, which may be not decided on a busy machine"
    same = here.verdict == there.verdict
    if same and there.timed:
        return AGREES, f"{both}: a time, so only the verdict is compared"
    if same and not moved:
        return AGREES, f"{_result(here)}, bitwise"
    if only_rounding and not same:
        return DIFFERS if contradict else AGREES, f"{both}: only rounding makes the difference"
    if only_rounding:
        return AGREES, f"{both}: within {there.rounding:g}, which rounding can explain"
    beyond = [move for move in moves if move.by > move.most]
    if same and moves and not beyond:
        return AGREES, f"{both}: {_largest(moves)}"
    if moved and not (contradict or rounds_alike or there.timed) and _within_uncertainty(here, there):
        return CONSISTENT, f"{both}: {'within both intervals together' if known else 'no number to compare'}"
    return DIFFERS, f"{both}: {_largest(beyond)}" if same and beyond else both


def _moves(here: Judged, there: Judged, tolerance: float) -> list[Move]:
    """How far the estimate and the ends of its interval moved; empty if a number is missing."""
    ones, others = ([one for one in side.numbers if one is not None] for side in (here, there))
    if len(ones) < len(NUMBERS) or len(others) < len(NUMBERS):
        return []
    estimate, low, high = others
    size = max(abs(estimate), (high - low) / 2)
    ends = max(tolerance * size, ENDS * (high - low) / 2)
    by = (abs(one - other) for one, other in zip(ones, others, strict=True))
    return [Move(*move, size) for move in zip(NUMBERS, by, (tolerance * size, ends, ends), strict=True)]


def _largest(moves: list[Move]) -> str:
    largest = max(moves, key=lambda move: move.by)
    return f"{largest.what} moved by {_share(largest.by, largest.size)}"


def _within_uncertainty(here: Judged, there: Judged) -> bool:
    """Whether the 95% interval of the difference of both estimates contains 0.

    The interval of a difference comes from the ends that face each other (MOVER; Zou and Donner, 2008). It takes both
    sides as independent. They share their seeds, so this accepts rather too much than too little. Numbers without
    uncertainty are never consistent. A verdict without a number is, if it is "not decided" although every seed has one.
    """
    sides = []
    for one in (here, there):
        if one.estimate is None and not (one.verdict == OPEN and one.by_seed and _all_finite(one.by_seed)):
            return False
        if one.estimate is not None:
            ends = -math.inf if one.low is None else one.low, math.inf if one.high is None else one.high
            if ends[0] == ends[1]:
                return False
            sides.append((one.estimate, *ends))
    if len(sides) < 2:
        return True
    (smaller, _, above), (larger, below, _) = sorted(sides)
    return larger - smaller <= math.hypot(above - smaller, larger - below)


def _all_finite(by_seed: Mapping[str, Any]) -> bool:
    """Whether the numbers of all seeds are known. Numbers that are not finite are stored as None."""
    values = [value.values() if isinstance(value, dict) else value for value in by_seed.values()]
    return all(None not in value if isinstance(value, Collection) else value is not None for value in values)


def _result(one: Judged) -> str:
    return f"{one.verdict} {number(one.estimate)}" if one.estimate is not None else f"{one.verdict}, no number"


def _share(moved: float, size: float) -> str:
    return f"{number(100 * moved / size)}%" if size else "infinitely much"
