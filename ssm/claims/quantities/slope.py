"""Slope of a curve."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.slope import Slope


class SlopeEstimator(CurveEstimator[Slope]):
    """By least squares, all points alike."""

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.spec.log_x else x
            y = np.log(y) if self.spec.log_y else y
            distance = x - x.mean()
            slope: np.ndarray = y @ distance / (distance @ distance)
        return slope

    def called(self) -> str:
        scales = [name for name, log in (("x", self.spec.log_x), ("y", self.spec.log_y)) if log]
        return "slope" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "")
