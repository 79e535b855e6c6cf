"""The spec of a reach."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class Reach(CurveQuantity):
    """How far a curve holds a value from its first point on: the longest length at which 99% are right (mi Figure 7b).

    Where it first falls below `value`, on a straight line between the points. Unlike a crossing it always has a number:
    0 where the curve begins below the value, its last x where it never falls below, which is then a lower bound.
    """

    kind: Literal["reach"] = "reach"
    value: float
