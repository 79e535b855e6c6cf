"""The spec of how straight a curve is."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class RSquared(CurveQuantity):
    """R^2 of the straight line through a curve's points, by least squares: 1 where all lie on it."""

    kind: Literal["r_squared"] = "r_squared"
    log_x: bool = False
    log_y: bool = False
