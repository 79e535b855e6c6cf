"""The slope of a curve."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Slope(CurveQuantity):
    """Slope of the least-squares line through the points of a curve. On two logarithmic scales it is an exponent."""

    kind: Literal["slope"] = "slope"
    log_x: bool = False  # true: use the logarithm of x
    log_y: bool = False  # true: use the logarithm of y

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x = np.log(x) if self.log_x else x
        y = np.log(y) if self.log_y else y
        distance = x - x.mean()
        slope: np.ndarray = y @ distance / (distance @ distance)
        return slope

    def describe_number(self) -> str:
        scales = [name for name, log in (("x", self.log_x), ("y", self.log_y)) if log]
        return "slope" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "")
