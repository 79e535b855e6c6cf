"""The spec of a crossing."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.quantities.curve import CurveQuantity


class Crossing(CurveQuantity):
    """Where a curve passes a value: with x a step, when an accuracy is reached; with x a length, how far it holds.

    The first x at which the curve has passed and stays so for `holds` points, between the last point before it and the
    first behind it on a straight line. With `log_x` arms compare as a ratio, else by their difference.
    """

    kind: Literal["crossing"] = "crossing"
    value: float
    direction: Literal["up", "down"] = "up"
    holds: PositiveInt = 1
    log_x: bool = False
