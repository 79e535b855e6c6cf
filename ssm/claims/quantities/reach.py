"""How far a curve holds a value."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.reach import Reach


class ReachEstimator(CurveEstimator[Reach]):
    """On straight lines between the points; 0 where a curve begins below the value.

    Where it never falls below, the last x: a lower bound.
    """

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        height = y - self.spec.value  # (R, K)
        fallen = height < 0
        first = fallen.argmax(axis=1)  # (R,); 0: from the beginning, or never
        rows, before = np.arange(len(y)), np.maximum(first - 1, 0)
        above, below = height[rows, before], height[rows, first]
        with np.errstate(divide="ignore", invalid="ignore"):
            there = x[before] + above / (above - below) * (x[first] - x[before])
        ends = np.where(fallen[:, 0], 0.0, x[-1])
        return np.where(np.isfinite(height).all(axis=1), np.where(first > 0, there, ends), np.nan)

    def called(self) -> str:
        return f"last place that holds {self.spec.value:g} from the first on"
