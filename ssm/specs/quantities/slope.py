"""The spec of a slope."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class Slope(CurveQuantity):
    """Slope of the straight line through a curve's points, by least squares; on logarithmic scales an exponent."""

    kind: Literal["slope"] = "slope"
    log_x: bool = False
    log_y: bool = False
