"""Intervals of what a diagnosis reads off its tables, all at 95%."""

from __future__ import annotations

from math import exp, inf, isfinite, nan, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from ssm.base.curves import seed_interval
from ssm.claims.estimate import LEVEL
from ssm.diagnosis.result import Interval

OVERFLOW = 700.0  # the largest logarithm whose exponential is a number
NOTHING = Interval(nan, -inf, inf)
UNSEEN = 10.0  # standard deviations: how much worse than the others a window may be that was not drawn


def mean(values: np.ndarray) -> Interval:
    """A mean over sequences, (sequences,), with its Student t interval."""
    found = seed_interval(values, LEVEL)
    return Interval(*found) if isfinite(found[0]) else NOTHING


def exponential(logarithms: np.ndarray, level: float = LEVEL) -> Interval:
    """exp of a mean over sequences, (sequences,), with its Student t interval."""
    return of_logarithms(*seed_interval(logarithms, level))


def cautious(logarithms: np.ndarray) -> Interval:
    """exp of a mean over windows, (windows,), with an interval that allows for one window that was not drawn.

    What a model fails on may be rare, and a Student t interval knows only the windows that were drawn. This one is that
    of the windows and one more, UNSEEN of their standard deviations away on the side of each end. Few windows are
    enough for a large effect; a small one takes many (`reach`).

    False claims in percent, 2.5 allowed: how often the upper end lies below the true mean, the worst of seven pools of
    paired losses of real models (tests/extension/coverage.py, which says what the pools are):

    windows                        4      8     12     16     24     32     48     64    128
    Student t, as measured       2.4    2.8    2.9    3.0    2.8    2.9    2.8    2.7    2.7
    Student t, worse tails       8.4   15.7   17.1   14.2    9.7    8.2    6.9    6.2    4.9
    Student t, rare failures    20.9   30.5   25.8   18.3    9.1    8.9    7.1    6.2    4.6
    this one, as measured        0.0    0.0    0.0    0.0    0.0    0.0    0.0    0.0    0.1
    this one, worse tails        0.1    0.0    0.0    0.0    0.1    0.2    0.3    0.3    0.4
    this one, rare failures      0.4    0.1    0.2    0.4    1.3    1.9    0.7    0.5    0.5
    """
    value, windows = float(np.mean(logarithms)), len(logarithms)
    if windows < 2 or not isfinite(value):
        return exponential(logarithms)
    half = reach(windows) * float(np.std(logarithms, ddof=1))
    return of_logarithms(value, value - half, value + half)


def reach(windows: int) -> float:
    """Half the width of a `cautious` interval, in standard deviations of the windows (2 or more).

    >>> [round(reach(n), 2) for n in (4, 12, 24, 64, 256)]
    [7.66, 2.54, 1.32, 0.55, 0.18]
    """
    more, t = windows + 1, float(stdtrit(windows, 0.5 + LEVEL / 2))
    square = (windows - 1 + UNSEEN**2 * windows / more) / windows  # the variance with the window that was not drawn
    return UNSEEN / more + t * sqrt(square / more)


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
