"""How far a curve stays above a value."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Reach(CurveQuantity):
    """The x up to which a curve stays above a value, such as the longest length with 99% accuracy (mi Figure 7b).

    It is the x at which the curve first falls below `value`, interpolated linearly. Unlike `crossing` it always has a
    number: 0 if the curve starts below the value, and its last x (a lower bound) if it never falls below it.
    """

    kind: Literal["reach"] = "reach"
    value: float  # the value that the curve has to keep

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        height = y - self.value  # (R, K)
        fallen = height < 0
        first = fallen.argmax(axis=1)  # (R,); 0: below from the start, or never
        rows, before = np.arange(len(y)), np.maximum(first - 1, 0)
        above, below = height[rows, before], height[rows, first]
        there = x[before] + above / (above - below) * (x[first] - x[before])
        ends = np.where(fallen[:, 0], 0.0, x[-1])
        return np.where(np.isfinite(height).all(axis=1), np.where(first > 0, there, ends), np.nan)

    def describe_number(self) -> str:
        return f"largest x up to which the curve stays above {self.value:g}"
