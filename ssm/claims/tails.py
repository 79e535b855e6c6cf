"""Tails: the p-values of a number, which belong to its interval.

A tail and an interval of the same method agree: a 95% interval does not contain a bound if and only if the two-sided
p-value of this bound is below .05.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ssm.base.lazy import special
from ssm.claims.bounded_mean import share_below


@dataclass(frozen=True)
class Tails:
    """One-sided p-values: functions of a bound."""

    at_most: Callable[[float], float]  # of the hypothesis that the true number is at most the bound
    at_least: Callable[[float], float]  # of the hypothesis that it is at least the bound

    def two_sided(self, bound: float) -> float:
        """The p-value of the hypothesis that the true number is the bound."""
        return min(1.0, 2 * min(self.at_most(bound), self.at_least(bound)))


def student_tails(values_at: Callable[[float], np.ndarray]) -> Tails:
    """The t test of a mean.

    Args:
        values_at: bound -> (n,) numbers whose true mean is above 0 if the true number is above the bound.
    """

    def below(bound: float, sign: int) -> float:
        values = values_at(bound)
        mean, error = sign * float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
        t = mean / error if error else math.copysign(math.inf, mean) if mean else 0.0
        return float(special.stdtr(len(values) - 1, -t))

    return Tails(lambda bound: below(bound, 1), lambda bound: below(bound, -1))


def bounded_tails(values: np.ndarray, limits: tuple[float, float]) -> Tails:
    """The tails of `bounded_interval`: the exact probabilities of its random weights."""

    def below(limit: float, bound: float) -> float:
        if float(np.ptp(values)) == 0 and values[0] == limit == bound:
            return 0.5  # all of the weighted means are the bound
        return min(1.0, max(0.0, share_below(values, limit, bound)))

    return Tails(lambda bound: below(limits[0], bound), lambda bound: 1 - below(limits[1], bound))


def bootstrap_tails(draws: np.ndarray) -> Tails:
    """The tails of a percentile interval: shares of the draws, at least that of a single draw."""
    ordered, ranks = np.sort(draws), np.linspace(0, 1, len(draws))  # as np.quantile

    def below(bound: float) -> float:
        return float(np.clip(np.interp(bound, ordered, ranks), 1 / len(draws), 1 - 1 / len(draws)))

    return Tails(below, lambda bound: 1 - below(bound))


def smallest_tails(every: Sequence[Tails]) -> Tails:
    """The smallest of several numbers: all are above the bound, or one of them is below it (Bonferroni)."""
    return Tails(
        lambda bound: max(one.at_most(bound) for one in every),
        lambda bound: min(1.0, len(every) * min(one.at_least(bound) for one in every)),
    )


def exponential_tails(of_logarithm: Tails) -> Tails:
    """The tails of a ratio, from those of its logarithm. No ratio is 0 or less."""
    return Tails(
        lambda bound: of_logarithm.at_most(math.log(bound)) if bound > 0 else 0.0,
        lambda bound: of_logarithm.at_least(math.log(bound)) if bound > 0 else 1.0,
    )
