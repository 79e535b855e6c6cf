"""The interval of a mean of values between known limits, whatever their distribution (Gaffke 2005).

A few values show nothing of a part of the distribution from which none of them came. The values are therefore joined
by one unseen value at a limit: the lower limit for the lower end, the upper limit for the upper end. The joined values
get random weights, which are uniform among all weights with sum 1 (a Dirichlet distribution). The end of the interval
is a quantile of the weighted mean.

For values that are 0 or 1, this is the interval of Clopper and Pearson (1934). For paired differences of such values,
it excludes 0 if McNemar's exact test does. For other values, no distribution is known for which it misses more often
than stated (Gaffke 2005; Learned-Miller and Thomas 2019). `tests/claims/coverage.py` measures it.

Sources: N. Gaffke, Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
variable, Mathematical Methods of Statistics 14, 2005. E. Learned-Miller and P. Thomas, A new confidence interval for
the mean of a bounded random variable, arXiv:1905.06208.
"""

from __future__ import annotations

import numpy as np

from ssm.base.lazy import optimize

REACH = 36.0  # logarithm of the highest frequency; what is left out is about exp(-REACH)


def bounded_interval(values: np.ndarray, limits: tuple[float, float], level: float) -> tuple[float, float]:
    """The two-sided interval of the mean of the distribution from which the values were drawn.

    Args:
        values: (n,), independent draws, n >= 1.
        limits: smallest and largest possible value, both finite.
        level: confidence level of the interval.
    """
    tail = (1 - level) / 2
    return _quantile(values, limits[0], tail), _quantile(values, limits[1], 1 - tail)


def share_below(values: np.ndarray, limit: float, mean: float) -> float:
    """The probability that the weighted mean of the values and an unseen value at `limit` is below `mean`.

    With the lower limit, it is the p-value of the hypothesis that the true mean is at most `mean`. One minus this
    probability, with the upper limit, is that of the hypothesis that the true mean is at least `mean`.

    Args:
        values: (n,).
        limit: one of the limits.
        mean: neither all values nor the limit are equal to it.
    """
    points, counts = np.unique(np.append(values, limit), return_counts=True)
    away = points - mean
    away = away / np.abs(away).max()
    # Uniform weights are exponential variables E divided by their sum. So the weighted mean is below `mean` if the sum
    # of E * away is negative. The integral inverts its characteristic function (Gil-Pelaez 1951). Over the logarithm of
    # the frequency, the error of the trapezoid rule is about exp(-2 * (pi / 0.8)**2) for these steps.
    step = min(0.25, 0.8 / np.sqrt(counts.sum()))
    scaled = np.exp(np.arange(-REACH, REACH, step))[:, None] * away
    size, phase = np.exp(np.log1p(scaled**2) @ (-counts / 2)), np.arctan(scaled) @ counts
    return float(0.5 - step / np.pi * (size * np.sin(phase)).sum())


def _quantile(values: np.ndarray, limit: float, share: float) -> float:
    """The value below which the weighted mean of the values and the limit is with probability `share`."""
    low, high = float(min(values.min(), limit)), float(max(values.max(), limit))
    if low == high:
        return low
    margin = 1e-15 * (high - low)
    found = optimize.brentq(lambda mean: share_below(values, limit, mean) - share, low, high, xtol=margin or 1e-300)
    return float(found)
