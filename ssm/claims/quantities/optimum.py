"""Where a curve has its largest or smallest value."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Optimum(CurveQuantity):
    """The x at which a curve is largest or smallest: the vertex of the parabola through that point and its neighbors.

    With `log_x`, the parabola is on a logarithmic x, and arms are compared by their ratio. If the extreme is at an end
    of the curve, the result is that end, although the true optimum may lie beyond it.
    """

    kind: Literal["optimum"] = "optimum"
    which: Literal["largest", "smallest"]  # which extreme value
    log_x: bool = False  # true: use the logarithm of x

    @property
    def logarithmic(self) -> bool:
        return self.log_x

    @property
    def possible(self) -> tuple[float, float]:
        """An optimum is between the ends of its curve, which a sweep over named arms gives."""
        if self.compared or self.sweep is None or self.sweep.at is None:
            return super().possible
        return min(self.sweep.at), max(self.sweep.at)

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Inside, the vertex is at most half way from the best point to a neighbor."""
        x = np.log(x) if self.log_x else x
        rows = np.arange(len(y))
        best = (y if self.which == "largest" else -y).argmax(axis=1)  # (R,)
        inside = (best > 0) & (best < len(x) - 1)
        behind = np.minimum(best + 1, len(x) - 1)
        before, after = x[best] - x[best - 1], x[behind] - x[best]  # (R,)
        left = (y[rows, best] - y[rows, best - 1]) / before
        right = (y[rows, behind] - y[rows, best]) / after
        # the slope of the parabola is `left` half way before the point, and `right` half way after it
        vertex = x[best] - before / 2 + left / (left - right) * (before + after) / 2
        return np.where(inside, vertex, np.where(np.isfinite(y).all(axis=1), x[best], np.nan))

    def describe_number(self) -> str:
        return f"x of the {self.which} value{' on a logarithmic scale' if self.log_x else ''}"
