"""A small SVG that shows an interval and the region that confirms the claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from ssm.claims.claim import Expected

WIDTH, HEIGHT, MARGIN = 150, 16, 8  # CSS pixels
LOGARITHMIC_FROM = 3.0  # the scale is logarithmic if all values are positive and differ by more than this factor


def strip(row: dict[str, Any], expected: Expected) -> Markup:
    """The strip of a verdict: the expected region is shaded, the interval is a bar, the estimate is a dot.

    It repeats the text next to it, so it is hidden from screen readers. Without an estimate it is empty.
    """
    if row["estimate"] is None:
        return Markup("")
    bounds = [bound for bound in (expected.above, expected.below) if bound is not None]
    place = _scale([row["low"], row["high"], *bounds])
    left = 0.0 if expected.above is None else place(expected.above)
    right = float(WIDTH) if expected.below is None else place(expected.below)
    middle = HEIGHT / 2
    low, high, value = (place(row[name]) for name in ("low", "high", "estimate"))
    marks = "".join(f'<path class="bound" d="M{place(b):.1f} 0V{HEIGHT}"/>' for b in bounds)
    return Markup(
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f'<rect class="region" x="{left:.1f}" width="{right - left:.1f}" height="{HEIGHT}"/>{marks}'
        f'<path class="bar" d="M{low:.1f} {middle}H{high:.1f}"/><circle cx="{value:.1f}" cy="{middle}" r="3.5"/></svg>'
    )


def _scale(values: list[float]) -> Callable[[float], float]:
    """A function from a value to its place in pixels. All `values` are visible, with a margin around them."""
    least, most = min(values), max(values)
    logarithmic = least > 0 and most / least > LOGARITHMIC_FROM
    change: Callable[[float], float] = math.log if logarithmic else float
    start, length = change(least), (change(most) - change(least)) or 1.0
    return lambda value: MARGIN + (change(value) - start) / length * (WIDTH - 2 * MARGIN)
