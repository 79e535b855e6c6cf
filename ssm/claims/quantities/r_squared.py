"""How straight a curve is."""

from __future__ import annotations

import numpy as np

from ssm.claims.quantities.curve import CurveEstimator
from ssm.specs.quantities.r_squared import RSquared


class RSquaredEstimator(CurveEstimator[RSquared]):
    """The squared correlation, which is what the line by least squares explains of the variance."""

    def __init__(self, spec: RSquared):
        super().__init__(spec)
        self.limits = (-1.0, 1.0) if spec.less_log_x else (0.0, 1.0)

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(y) if self.spec.log_y else y
            found = explained(np.log(x) if self.spec.log_x else x, y)
            return found - explained(np.log(x), y) if self.spec.less_log_x else found

    def called(self) -> str:
        scales = [name for name, log in (("x", self.spec.log_x), ("y", self.spec.log_y)) if log]
        less = " less that on a logarithmic x" if self.spec.less_log_x else ""
        return "R^2 of a straight line" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "") + less


def explained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The squared correlation of x (K,) and every row of y (R, K): (R,)."""
    distance, height = x - x.mean(), y - y.mean(axis=1, keepdims=True)
    share: np.ndarray = (height @ distance) ** 2 / ((distance @ distance) * (height**2).sum(axis=1))
    return share
