"""Where a curve passes a value."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ssm.claims.curve import CurveQuantity, Points


class Crossing(CurveQuantity):
    """Where a curve passes a value: with x a step, when an accuracy is reached; with x a length, how far it holds.

    The first x at which the curve has passed and stays so for `holds` points, between the last point before it and the
    first behind it on a straight line. With `log_x` arms compare as a ratio, else by their difference.
    """

    kind: Literal["crossing"] = "crossing"
    value: float
    direction: Literal["up", "down"] = "up"
    holds: PositiveInt = 1
    log_x: bool = False

    @property
    def logarithmic(self) -> bool:
        return self.log_x

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """On straight lines between the points; a curve that begins behind the value, or never reaches it, has none."""
        count = len(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.log_x else x
        height = (y - self.value) * (1 if self.direction == "up" else -1)  # (R, K)
        passed = height >= 0
        stays = passed.copy()
        for step in range(1, self.holds):
            stays[:, : count - step] &= passed[:, step:]
            stays[:, count - step :] = False  # too near the end to know
        first = stays.argmax(axis=1)  # (R,); 0: from the beginning, or never
        rows, before = np.arange(len(y)), np.maximum(first - 1, 0)
        below, above = height[rows, before], height[rows, first]
        with np.errstate(divide="ignore", invalid="ignore"):
            there = x[before] + below / (below - above) * (x[first] - x[before])
        return np.where(first > 0, there, np.nan)

    def missing(self, points: Points) -> str:
        return f"does not go {self._through()} from {points.x[0]:g} to {points.x[-1]:g}"

    def called(self) -> str:
        return f"first place that goes {self._through()}"

    def _through(self) -> str:
        stays = f" for {self.holds} points" if self.holds > 1 else ""
        return f"{self.direction} through {self.value:g}{stays}"
