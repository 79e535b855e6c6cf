"""Intervals of what a diagnosis reads off its tables, all at 95%."""

from __future__ import annotations

from math import exp, inf, isfinite, nan, sqrt

import numpy as np
from scipy.special import ndtri

from ssm.base.curves import seed_interval
from ssm.claims.estimate import LEVEL
from ssm.diagnosis.result import Interval

OVERFLOW = 700.0  # the largest logarithm whose exponential is a number
NOTHING = Interval(nan, -inf, inf)


def mean(values: np.ndarray) -> Interval:
    """A mean over sequences, (sequences,), with its Student t interval."""
    found = seed_interval(values, LEVEL)
    return Interval(*found) if isfinite(found[0]) else NOTHING


def exponential(logarithms: np.ndarray, level: float = LEVEL) -> Interval:
    """exp of a mean over sequences, (sequences,), with its Student t interval."""
    return of_logarithms(*seed_interval(logarithms, level))


def of_logarithms(value: float, low: float, high: float) -> Interval:
    """From a logarithm and its ends."""
    if not isfinite(value):
        return NOTHING
    return Interval(*(exp(min(end, OVERFLOW)) for end in (value, low, high)))


def share(by_sequence: np.ndarray) -> Interval:
    """The mean of numbers between 0 and 1, (sequences,), with its Student t interval, cut there."""
    found = mean(by_sequence)
    return found if found is NOTHING else Interval(found.value, max(0.0, found.low), min(1.0, found.high))


def wilson(successes: int, trials: int) -> Interval:
    """A fraction, and Wilson's score interval (1927).

    >>> round(wilson(8, 8).low, 4)
    0.6756
    """
    z, p = float(ndtri(0.5 + LEVEL / 2)), successes / trials
    middle = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))
