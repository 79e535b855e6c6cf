"""How far a curve holds a value."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Reach(CurveQuantity):
    """How far a curve holds a value from its first point on: the longest length at which 99% are right (mi Figure 7b).

    Where it first falls below `value`, on a straight line between the points. Unlike a crossing it always has a number:
    0 where the curve begins below the value, its last x where it never falls below, which is then a lower bound.
    """

    kind: Literal["reach"] = "reach"
    value: float

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        height = y - self.value  # (R, K)
        fallen = height < 0
        first = fallen.argmax(axis=1)  # (R,); 0: from the beginning, or never
        rows, before = np.arange(len(y)), np.maximum(first - 1, 0)
        above, below = height[rows, before], height[rows, first]
        with np.errstate(divide="ignore", invalid="ignore"):
            there = x[before] + above / (above - below) * (x[first] - x[before])
        ends = np.where(fallen[:, 0], 0.0, x[-1])
        return np.where(np.isfinite(height).all(axis=1), np.where(first > 0, there, ends), np.nan)

    def called(self) -> str:
        return f"last place that holds {self.value:g} from the first on"
