"""How many seeds would decide a claim that is not decided."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ssm.base.lazy import special
from ssm.claims.claim import Expected
from ssm.claims.estimate import LEVEL
from ssm.claims.method import FIELLER, SEEDS, Method
from ssm.claims.statements import ELSEWHERE, OPEN
from ssm.claims.tails import bounded_tails
from ssm.claims.verdict import decide
from ssm.claims.words import by_seed

POWER = 0.8  # probability that so many seeds decide the claim
MOST = 1000  # larger numbers are not told apart
TAIL = (1 - LEVEL) / 2
CERTAIN = 20.0  # standard deviations, beyond which almost nothing is missed and scipy's function may give NaN


def seeds_needed(row: Mapping[str, Any]) -> int | None:
    """The number of new seeds that would decide a verdict with probability `POWER`.

    The true number is taken to be the estimate, and seeds to spread as they do here. The interval of the new seeds has
    the method of this one. For the smallest of several steps, it is a Student t interval.

    Args:
        row: `verdict`, `sort`, `expected`, `estimate`, `low`, `high`, `interval` and `by_seed` of a verdict.

    Returns:
        At most `MOST` + 1, which means "more than `MOST`". None: the verdict is decided, or is open for another reason
        than its interval over seeds.
    """
    method = Method.of_words(row["interval"])
    if row["verdict"] != OPEN or row["sort"] == ELSEWHERE or method.of != SEEDS or method.count < 2:
        return None
    ends = [row[name] for name in ("estimate", "low", "high")]
    expected = Expected.of_words(row["expected"])
    if any(end is None or not math.isfinite(end) for end in ends) or decide(ends[1], ends[2], expected)[0] != OPEN:
        return None
    bounds = _bounds(ends[0], expected)
    limits = method.possible or ()
    numbers = [*by_seed(row).values()] if limits or method.name == FIELLER else []
    if not numbers and (limits or method.name == FIELLER):
        return None
    if method.logarithms and min(*ends, *bounds, *numbers, *limits) <= 0:
        return None
    scale = np.log if method.logarithms else np.array
    if limits:
        enough = _by_gaffke(scale(numbers), scale(bounds), scale(limits))
    elif method.name == FIELLER:
        enough = _by_student(_pooled_distances(numbers, bounds))
    else:
        enough = _by_student(_distances(scale(ends), scale(bounds), method))
    return bisect_left(range(2, MOST + 1), True, key=enough) + 2


def needed_words(row: Mapping[str, Any]) -> str:
    """`seeds_needed` as text: "about 24 new seeds would decide it"; empty if there is no such number."""
    needed = seeds_needed(row)
    if needed is None:
        return ""
    count = f"more than {MOST:,}" if needed > MOST else f"about {needed}"
    return f"{count} new seeds would decide it"


def _bounds(estimate: float, expected: Expected) -> tuple[float, ...]:
    """The bounds that the interval must not contain, so that the claim is decided in favor of the estimate."""
    above, below = expected.above, expected.below
    if above is not None and estimate <= above:
        return (above,)
    if below is not None and estimate >= below:
        return (below,)
    return expected.bounds


def _distances(ends: np.ndarray, bounds: np.ndarray, method: Method) -> list[float]:
    """The distance of each bound from the estimate, in standard deviations of a seed.

    Args:
        ends: (3,), the estimate and the ends of the interval, as logarithms if the interval is one of logarithms.
        bounds: on the same scale.
        method: of the interval, Student t over seeds.
    """
    estimate, low, high = ends
    critical = float(special.stdtrit(method.count - 1, 1 - TAIL))
    distances = []
    for bound in bounds:
        side = estimate - low if bound < estimate else high - estimate
        # Both sides are equal, unless one is cut at a limit of the number. Those of the smallest step differ.
        width = side if method.steps else max(estimate - low, high - estimate)
        distances.append(abs(estimate - bound) * critical / (width * math.sqrt(method.count)))
    return distances


def _pooled_distances(pairs: Sequence[Mapping[str, float]], bounds: Sequence[float]) -> list[float]:
    """The same for a pooled share with Fieller's interval: a t test, for each bound, of one number per seed.

    Args:
        pairs: `before` and `after` of each seed.
    """
    before, after = (np.array([pair[name] for pair in pairs]) for name in ("before", "after"))
    tested = [(1 - bound) * before - after for bound in bounds]  # its true mean is 0 at the bound
    return [abs(float(one.mean() / one.std(ddof=1))) for one in tested]


def _by_student(distances: Sequence[float]) -> Callable[[int], bool]:
    """Whether t tests with so many seeds exclude the bounds often enough.

    Args:
        distances: of the bounds from the estimate, in standard deviations of a seed.
    """

    def enough(count: int) -> bool:
        critical = float(special.stdtrit(count - 1, 1 - TAIL))
        means = [distance * math.sqrt(count) for distance in distances]  # of the noncentral t distribution
        missed = sum(float(special.nctdtr(count - 1, mean, critical)) for mean in means if mean < critical + CERTAIN)
        return 1 - missed >= POWER

    return enough


def _by_gaffke(numbers: np.ndarray, bounds: np.ndarray, limits: np.ndarray) -> Callable[[int], bool]:
    """Whether Gaffke's intervals exclude the bounds even if the mean of so many seeds is closer to them by bad luck.

    Args:
        numbers: (n,), of the seeds, as logarithms if the interval is one of logarithms. Other seeds are taken to have
            the same distribution.
        bounds: on the same scale.
        limits: (2,), smallest and largest possible number on the same scale.
    """
    mean, deviation = float(numbers.mean()), float(numbers.std(ddof=1))

    def enough(count: int) -> bool:
        luck = float(special.ndtri(POWER)) * deviation / math.sqrt(count)
        if any(luck >= abs(bound - mean) for bound in bounds):
            return False
        others = np.quantile(numbers, (np.arange(count) + 0.5) / count, method="inverted_cdf")
        tails, apart = bounded_tails(others, (limits[0], limits[1])), float(others.mean()) - mean
        return all(tails.two_sided(bound + apart + math.copysign(luck, mean - bound)) < 2 * TAIL for bound in bounds)

    return enough
