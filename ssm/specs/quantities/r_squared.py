"""The spec of how straight a curve is."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from ssm.specs.quantities.curve import CurveQuantity


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
