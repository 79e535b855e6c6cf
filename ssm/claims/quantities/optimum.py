"""Where a curve has its largest or smallest value."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.optimum import Optimum


class OptimumEstimator(CurveEstimator[Optimum]):
    """Of every seed by itself: between the points, at most half way from the best one to a neighbour; or an end."""

    @property
    def logarithmic(self) -> bool:
        return self.spec.log_x

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.spec.log_x else x
            rows = np.arange(len(y))
            best = (y if self.spec.which == "largest" else -y).argmax(axis=1)  # (R,)
            inside = (best > 0) & (best < len(x) - 1)
            behind = np.minimum(best + 1, len(x) - 1)
            before, after = x[best] - x[best - 1], x[behind] - x[best]  # (R,)
            left = (y[rows, best] - y[rows, best - 1]) / before
            right = (y[rows, behind] - y[rows, best]) / after
            # the parabola's slope is `left` half way before the point, and `right` half way behind it
            vertex = x[best] - before / 2 + left / (left - right) * (before + after) / 2
        return np.where(inside, vertex, np.where(np.isfinite(y).all(axis=1), x[best], np.nan))

    def called(self) -> str:
        return f"place of the {self.spec.which} value{' on a logarithmic scale' if self.spec.log_x else ''}"
