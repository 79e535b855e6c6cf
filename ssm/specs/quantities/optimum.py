"""The spec of the place of a curve's largest or smallest value."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class Optimum(CurveQuantity):
    """Where a curve is largest, or smallest: the vertex of the parabola through that point and its two neighbours.

    With `log_x` on a logarithmic scale of x, where arms compare as a ratio. Of a curve that has it at an end it is that
    end, although the curve may go on beyond.
    """

    kind: Literal["optimum"] = "optimum"
    which: Literal["largest", "smallest"]
    log_x: bool = False
