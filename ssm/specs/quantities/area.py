"""The spec of an area."""

from __future__ import annotations

from typing import Literal

from ssm.specs.quantities.curve import CurveQuantity


class Area(CurveQuantity):
    """The area under a curve from its first point to its last, by trapezoids, over that distance: its mean height."""

    kind: Literal["area"] = "area"
    log_x: bool = False
