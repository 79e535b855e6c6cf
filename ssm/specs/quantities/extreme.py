"""The spec of a curve's largest or smallest value."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class Extreme(CurveQuantity):
    """The largest value of a curve, or the smallest: what holds of it holds all along the curve."""

    kind: Literal["extreme"] = "extreme"
    which: Literal["largest", "smallest"]
