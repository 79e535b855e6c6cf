"""How many seeds would decide a claim that is not decided."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ssm.base.lazy import special
from ssm.claims.claim import Expected
from ssm.claims.estimate import LEVEL
from ssm.claims.statements import ELSEWHERE, OPEN

OVER_SEEDS = re.compile(r"over (\d+) seeds")
POWER = 0.8  # probability that so many seeds decide the claim
MOST = 1000  # larger numbers are not told apart


def seeds_needed(row: Mapping[str, Any]) -> int | None:
    """The number of seeds that would decide a verdict with probability `POWER`.

    The true number is taken to be the estimate, and seeds to spread as they do here. The spread is that of a Student t
    interval with the same ends. So the number is a guide, and a rough one for other intervals.

    Args:
        row: `verdict`, `sort`, `expected`, `estimate`, `low`, `high` and `interval` of a verdict.

    Returns:
        At most `MOST` + 1, which means "more than `MOST`". None: the verdict is decided or has no interval over seeds.
    """
    over = OVER_SEEDS.search(row["interval"])
    if row["verdict"] != OPEN or row["sort"] == ELSEWHERE or row["estimate"] is None or over is None:
        return None
    logarithmic = row["interval"].endswith("of logarithms")
    estimate, low, high = (_on_scale(row[name], logarithmic) for name in ("estimate", "low", "high"))
    if not all(map(math.isfinite, (estimate, low, high))):
        return None
    symmetric = "Student t" in row["interval"]  # unless it is cut at a limit of the number
    seeds = int(over[1])
    critical = float(special.stdtrit(seeds - 1, 0.5 + LEVEL / 2))
    needed = 0
    for bound in _bounds(row["estimate"], Expected.of_words(row["expected"])):
        at = _on_scale(bound, logarithmic)
        side = estimate - low if at < estimate else high - estimate
        width = max(estimate - low, high - estimate) if symmetric else side
        needed = max(needed, _deciding(abs(estimate - at), width * math.sqrt(seeds) / critical))
    return needed


def needed_words(row: Mapping[str, Any]) -> str:
    """`seeds_needed` as text: "about 24 seeds", "more than 1,000 seeds"; empty if there is no such number."""
    needed = seeds_needed(row)
    if needed is None:
        return ""
    return f"more than {MOST:,} seeds" if needed > MOST else f"about {needed} seeds"


def _bounds(estimate: float, expected: Expected) -> list[float]:
    """The bounds that the interval must not contain, so that the claim is decided in favor of the estimate."""
    above, below = expected.above, expected.below
    if above is not None and estimate <= above:
        return [above]
    if below is not None and estimate >= below:
        return [below]
    return [bound for bound in (above, below) if bound is not None]


def _on_scale(number: float, logarithmic: bool) -> float:
    if not logarithmic:
        return number
    return math.log(number) if number > 0 else -math.inf


def _deciding(distance: float, deviation: float) -> int:
    """The number of seeds whose Student t interval excludes a bound with probability `POWER`; at most MOST + 1.

    Args:
        distance: from the true number to the bound.
        deviation: the standard deviation of seeds.
    """
    seeds = np.arange(2, MOST + 1)
    needed = special.stdtrit(seeds - 1, 0.5 + LEVEL / 2) + special.ndtri(POWER)  # in standard errors
    decided = needed * deviation <= distance * np.sqrt(seeds)
    return int(seeds[decided.argmax()]) if decided.any() else MOST + 1
