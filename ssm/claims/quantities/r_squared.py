"""How straight a curve is."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.r_squared import RSquared


class RSquaredEstimator(CurveEstimator[RSquared]):
    """The squared correlation, which is what the line by least squares explains of the variance."""

    limits = (0.0, 1.0)

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.spec.log_x else x
            y = np.log(y) if self.spec.log_y else y
            distance, height = x - x.mean(), y - y.mean(axis=1, keepdims=True)
            explained: np.ndarray = (height @ distance) ** 2 / ((distance @ distance) * (height**2).sum(axis=1))
        return explained

    def called(self) -> str:
        scales = [name for name, log in (("x", self.spec.log_x), ("y", self.spec.log_y)) if log]
        return "R^2 of a straight line" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "")
