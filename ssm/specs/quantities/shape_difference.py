"""The spec of how two distances' curves of remembrance differ."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import SeriesQuantity
from ssm.specs.quantities.remembrance import Distance


class ShapeDifference(SeriesQuantity):
    """How far the remembrance curves of one arm under two distances lie apart, each taken from its range to [0, 1].

    The largest absolute difference over all t between the means over sequences, each less its minimum and over its
    range: 0 for curves that differ in level and scale alone.
    """

    kind: Literal["shape_difference"] = "shape_difference"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    distance: Distance
    with_distance: Distance = "total_variation"
