"""Small SVGs that show intervals and the region that confirms the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from ssm.claims.claim import Expected
from ssm.claims.words import by_seed

WIDTH, HEIGHT, MARGIN = 150, 16, 8  # CSS pixels
LABELS = 56  # CSS pixels for the names of scales
REPORTED = "reported"  # label of the paper's number; "paper" is a scale
LOGARITHMIC_FROM = 3.0  # the scale is logarithmic if all values are positive and differ by more than this factor


def strip(row: Mapping[str, Any], expected: Expected) -> Markup:
    """The strip of a verdict.

    The expected region is shaded, the interval is a bar, and the estimate is a large dot. Small dots are the numbers
    of the seeds, if it is from seeds. The strip repeats the text next to it, so it is hidden from screen readers.
    Without an estimate it is empty.
    """
    return _drawn({"": row}, expected, None) if row["estimate"] is not None else Markup("")


def strip_of_scales(rows: Mapping[str, Mapping[str, Any]], expected: Expected, paper: float | None = None) -> Markup:
    """The strips of a verdict at several scales below each other, on one axis.

    Args:
        rows: scale -> its verdict; verdicts without an estimate are left out.
        paper: the paper's number, a vertical line.

    Returns:
        Nothing if there are fewer than two numbers to compare.
    """
    known = {scale: row for scale, row in rows.items() if row["estimate"] is not None}
    return _drawn(known, expected, paper) if known and len(known) + (paper is not None) > 1 else Markup("")


def _drawn(rows: Mapping[str, Mapping[str, Any]], expected: Expected, paper: float | None) -> Markup:
    theirs = [] if paper is None else [paper]
    seeds = {scale: _seed_numbers(row) for scale, row in rows.items()}
    ends = [row[name] for row in rows.values() for name in ("low", "high", "estimate")]
    place = _scale([*ends, *expected.bounds, *theirs, *(value for values in seeds.values() for value in values)])
    left = 0.0 if expected.above is None else place(expected.above)
    right = float(WIDTH) if expected.below is None else place(expected.below)
    width, height = WIDTH + (LABELS if any(rows) else 0), HEIGHT * (len(rows) + len(theirs))
    marks = "".join(f'<path class="bound" d="M{place(bound):.1f} 0V{height}"/>' for bound in expected.bounds)
    lanes = [f'<rect class="region" x="{left:.1f}" width="{right - left:.1f}" height="{height}"/>{marks}']
    for number, (scale, row) in enumerate(rows.items()):
        middle = HEIGHT * (number + 0.5)
        low, high, value = (place(row[name]) for name in ("low", "high", "estimate"))
        dots = "".join(f'<circle class="seed" cx="{place(one):.1f}" cy="{middle}" r="2"/>' for one in seeds[scale])
        lanes.append(
            f'<path class="bar" d="M{low:.1f} {middle}H{high:.1f}"/><circle cx="{value:.1f}" cy="{middle}" r="3.5"/>'
            f"{dots}{_label(scale, middle)}"
        )
    for value in theirs:
        middle = height - HEIGHT / 2
        line = f'<path class="paper" d="M{place(value):.1f} {middle - 5}V{middle + 5}"/>'
        lanes.append(line + _label(REPORTED, middle))
    return Markup(
        f'<svg class="strip" viewBox="0 0 {width} {height}" width="{width}" height="{height}" aria-hidden="true">'
        f"{''.join(lanes)}</svg>"
    )


def _label(text: str, middle: float) -> str:
    return f'<text x="{WIDTH + 4}" y="{middle + 4}">{text}</text>' if text else ""


def _seed_numbers(row: Mapping[str, Any]) -> list[float]:
    """The finite numbers of all seeds. Named parts are left out: they are not on the scale of the estimate."""
    found = []
    for values in by_seed(row).values():
        if not isinstance(values, Mapping):
            found += [one for one in (values if isinstance(values, list | tuple) else [values]) if one is not None]
    return found


def _scale(values: list[float]) -> Callable[[float], float]:
    """A function from a value to its place in pixels. All `values` are visible, with a margin around them."""
    least, most = min(values), max(values)
    logarithmic = least > 0 and most / least > LOGARITHMIC_FROM
    change: Callable[[float], float] = math.log if logarithmic else float
    start, length = change(least), (change(most) - change(least)) or 1.0
    return lambda value: MARGIN + (change(value) - start) / length * (WIDTH - 2 * MARGIN)
