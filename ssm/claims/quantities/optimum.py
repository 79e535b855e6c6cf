"""Where a curve has its largest or smallest value."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Optimum(CurveQuantity):
    """Where a curve is largest, or smallest: the vertex of the parabola through that point and its two neighbours.

    With `log_x` on a logarithmic scale of x, where arms compare as a ratio. Of a curve that has it at an end it is that
    end, although the curve may go on beyond.
    """

    kind: Literal["optimum"] = "optimum"
    which: Literal["largest", "smallest"]
    log_x: bool = False

    @property
    def logarithmic(self) -> bool:
        return self.log_x

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Between the points, at most half way from the best one to a neighbour; or an end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.log_x else x
            rows = np.arange(len(y))
            best = (y if self.which == "largest" else -y).argmax(axis=1)  # (R,)
            inside = (best > 0) & (best < len(x) - 1)
            behind = np.minimum(best + 1, len(x) - 1)
            before, after = x[best] - x[best - 1], x[behind] - x[best]  # (R,)
            left = (y[rows, best] - y[rows, best - 1]) / before
            right = (y[rows, behind] - y[rows, best]) / after
            # the parabola's slope is `left` half way before the point, and `right` half way behind it
            vertex = x[best] - before / 2 + left / (left - right) * (before + after) / 2
        return np.where(inside, vertex, np.where(np.isfinite(y).all(axis=1), x[best], np.nan))

    def called(self) -> str:
        return f"place of the {self.which} value{' on a logarithmic scale' if self.log_x else ''}"
