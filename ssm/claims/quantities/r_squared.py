"""How close a curve is to a straight line."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.claims.curve import CurveQuantity


class RSquared(CurveQuantity):
    """R^2 of the least-squares line through the points of a curve: 1 if all points lie on a line.

    With `less_log_x`, R^2 of the line on a logarithmic x is subtracted. If y is a logarithm, a positive number means
    that an exponential fits better, and a negative number that a power law fits better.
    """

    kind: Literal["r_squared"] = "r_squared"
    log_x: bool = False  # true: use the logarithm of x
    log_y: bool = False  # true: use the logarithm of y
    less_log_x: bool = False  # true: subtract R^2 of the line on a logarithmic x

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.less_log_x and self.log_x:
            raise ValueError("less_log_x: leave it out, because 'log_x' already makes x logarithmic")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return (-1.0, 1.0) if self.less_log_x else (0.0, 1.0)

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The squared correlation equals the share of the variance that the least-squares line explains."""
        y = np.log(y) if self.log_y else y
        share = squared_correlation(np.log(x) if self.log_x else x, y)
        return share - squared_correlation(np.log(x), y) if self.less_log_x else share

    def describe_number(self) -> str:
        scales = [name for name, log in (("x", self.log_x), ("y", self.log_y)) if log]
        less = " minus that on a logarithmic x" if self.less_log_x else ""
        return "R^2 of a straight line" + (f" on logarithmic scales ({', '.join(scales)})" if scales else "") + less


def squared_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The squared correlation of x (K,) with every row of y (R, K). (R,)"""
    distance, height = x - x.mean(), y - y.mean(axis=1, keepdims=True)
    share: np.ndarray = (height @ distance) ** 2 / ((distance @ distance) * (height**2).sum(axis=1))
    return share
