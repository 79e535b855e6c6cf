"""A curve's largest or smallest value."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.extreme import Extreme


class ExtremeEstimator(CurveEstimator[Extreme]):
    """Of every seed by itself: noise moves it outwards, so that a bound that it keeps is kept."""

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = y.max(axis=1) if self.spec.which == "largest" else y.min(axis=1)
        return found

    def called(self) -> str:
        return f"{self.spec.which} value"
