"""How straight a curve is."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.claims.curve import CurveQuantity


class RSquared(CurveQuantity):
    """R^2 of the straight line through a curve's points, by least squares: 1 where all lie on it.

    With `less_log_x`, less R^2 of the line on a logarithmic x: of logarithms above 0 an exponential fits better, below
    0 a power.
    """

    kind: Literal["r_squared"] = "r_squared"
    log_x: bool = False
    log_y: bool = False
    less_log_x: bool = False

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.less_log_x and self.log_x:
            raise ValueError("less_log_x: x is logarithmic already")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return (-1.0, 1.0) if self.less_log_x else (0.0, 1.0)

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The squared correlation, which is what the line by least squares explains of the variance."""
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(y) if self.log_y else y
            found = explained(np.log(x) if self.log_x else x, y)
            return found - explained(np.log(x), y) if self.less_log_x else found

    def called(self) -> str:
        scales = [name for name, log in (("x", self.log_x), ("y", self.log_y)) if log]
        less = " less that on a logarithmic x" if self.less_log_x else ""
        return "R^2 of a straight line" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "") + less


def explained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The squared correlation of x (K,) and every row of y (R, K): (R,)."""
    distance, height = x - x.mean(), y - y.mean(axis=1, keepdims=True)
    share: np.ndarray = (height @ distance) ** 2 / ((distance @ distance) * (height**2).sum(axis=1))
    return share
