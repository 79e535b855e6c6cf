"""Slope of a curve."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ssm.claims.curve import CurveQuantity


class Slope(CurveQuantity):
    """Slope of the straight line through a curve's points, by least squares; on logarithmic scales an exponent."""

    kind: Literal["slope"] = "slope"
    log_x: bool = False
    log_y: bool = False

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(x) if self.log_x else x
            y = np.log(y) if self.log_y else y
            distance = x - x.mean()
            slope: np.ndarray = y @ distance / (distance @ distance)
        return slope

    def called(self) -> str:
        scales = [name for name, log in (("x", self.log_x), ("y", self.log_y)) if log]
        return "slope" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "")
