"""Where a curve passes a value."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator, Points
from ssm.specs.quantities.crossing import Crossing


class CrossingEstimator(CurveEstimator[Crossing]):
    """On straight lines between the points; a curve that begins behind the value, or never reaches it, has none."""

    @property
    def logarithmic(self) -> bool:
        return self.spec.log_x

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        spec, count = self.spec, len(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if spec.log_x else x
        height = (y - spec.value) * (1 if spec.direction == "up" else -1)  # (R, K)
        passed = height >= 0
        stays = passed.copy()
        for step in range(1, spec.holds):
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
        stays = f" for {self.spec.holds} points" if self.spec.holds > 1 else ""
        return f"{self.spec.direction} through {self.spec.value:g}{stays}"
