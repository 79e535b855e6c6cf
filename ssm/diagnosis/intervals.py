"""Intervals of the numbers of a diagnosis, at 95%."""

from __future__ import annotations

from math import exp, inf, isfinite, nan, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from ssm.claims.estimate import LEVEL, seed_interval
from ssm.diagnosis.result import Interval

OVERFLOW = 700.0  # the largest logarithm with a finite exponential
NOTHING = Interval(nan, -inf, inf)
UNSEEN = 10.0  # standard deviations: how far a window that was not drawn may be from the others


def mean(values: np.ndarray) -> Interval:
    """The mean of (sequences,) values with its Student t interval."""
    value, low, high = seed_interval(values)
    return Interval(value, low, high) if isfinite(value) else NOTHING


def exponential(logarithms: np.ndarray, level: float = LEVEL) -> Interval:
    """exp of the mean of (sequences,) logarithms with its Student t interval."""
    return of_logarithms(*seed_interval(logarithms, level))


def cautious(logarithms: np.ndarray) -> Interval:
    """exp of the mean of (windows,) logarithms, with an interval that allows for one window that was not drawn.

    A model may fail on rare text, but a Student t interval uses only the drawn windows. So this interval is computed
    from the windows and one more window. That window is UNSEEN standard deviations from their mean, on the side of each
    end. A large effect needs few windows; a small effect needs many (`reach`).

    The table shows how often, in percent, the upper end is below the true mean: a false claim. 2.5 are allowed. Each
    number is the worst of seven pools of paired losses of real models (see tests/extension/coverage.py).

    windows                        4      8     12     16     24     32     48     64    128
    Student t, as measured       2.4    2.8    2.9    3.0    2.8    2.9    2.8    2.7    2.7
    Student t, worse tails       8.4   15.7   17.1   14.2    9.7    8.2    6.9    6.2    4.9
    Student t, rare failures    20.9   30.5   25.8   18.3    9.1    8.9    7.1    6.2    4.6
    cautious, as measured        0.0    0.0    0.0    0.0    0.0    0.0    0.0    0.0    0.1
    cautious, worse tails        0.1    0.0    0.0    0.0    0.1    0.2    0.3    0.3    0.4
    cautious, rare failures      0.4    0.1    0.2    0.4    1.3    1.9    0.7    0.5    0.5
    """
    value, windows = float(np.mean(logarithms)), len(logarithms)
    if windows < 2 or not isfinite(value):
        return exponential(logarithms)
    half = reach(windows) * float(np.std(logarithms, ddof=1))
    return of_logarithms(value, value - half, value + half)


def reach(windows: int) -> float:
    """Half the width of a `cautious` interval of 2 or more windows, in their standard deviations.

    >>> [round(reach(n), 2) for n in (4, 12, 24, 64, 256)]
    [7.66, 2.54, 1.32, 0.55, 0.18]
    """
    more, t = windows + 1, float(stdtrit(windows, 0.5 + LEVEL / 2))
    square = (windows - 1 + UNSEEN**2 * windows / more) / windows  # variance with the unseen window
    return UNSEEN / more + t * sqrt(square / more)


def of_logarithms(value: float, low: float, high: float) -> Interval:
    """An interval from the logarithms of its value and ends."""
    if not isfinite(value):
        return NOTHING
    return Interval(*(exp(min(end, OVERFLOW)) for end in (value, low, high)))


def share(by_sequence: np.ndarray) -> Interval:
    """The mean of (sequences,) numbers between 0 and 1, with its Student t interval, cut to [0, 1]."""
    interval = mean(by_sequence)
    if interval is NOTHING:
        return interval
    return Interval(interval.value, max(0.0, interval.low), min(1.0, interval.high))


def wilson(successes: int, trials: int) -> Interval:
    """A fraction with Wilson's score interval (1927).

    >>> round(wilson(8, 8).low, 4)
    0.6756
    """
    z, p = float(ndtri(0.5 + LEVEL / 2)), successes / trials
    middle = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))
