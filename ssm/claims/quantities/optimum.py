"""Where a curve has its largest or smallest value."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator, Points
from ssm.specs.quantities.optimum import Optimum


class OptimumEstimator(CurveEstimator[Optimum]):
    """Of every seed by itself, between the points: never farther from the best one than half way to a neighbour."""

    @property
    def logarithmic(self) -> bool:
        return self.spec.log_x

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.spec.log_x else x
            rows = np.arange(len(y))
            best = (y if self.spec.which == "largest" else -y).argmax(axis=1)  # (R,)
            inside = (best > 0) & (best < len(x) - 1)
            place = np.clip(best, 1, max(1, len(x) - 2))
            behind = np.minimum(place + 1, len(x) - 1)  # of two points there is no inside
            before, after = x[place] - x[place - 1], x[behind] - x[place]  # (R,)
            left = (y[rows, place] - y[rows, place - 1]) / before
            right = (y[rows, behind] - y[rows, place]) / after
            # the parabola's slope is `left` half way before the point, and `right` half way behind it
            vertex = x[place] - before / 2 + left / (left - right) * (before + after) / 2
        return np.where(inside, vertex, np.nan)

    def missing(self, points: Points) -> str:
        return f"is {self.spec.which} at an end, of points from {points.x[0]:g} to {points.x[-1]:g}"

    def called(self) -> str:
        return f"place of the {self.spec.which} value{' on a logarithmic scale' if self.spec.log_x else ''}"
