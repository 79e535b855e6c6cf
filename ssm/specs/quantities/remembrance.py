"""The spec of the remembrance of what lies far back, and the distances that it is measured by."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity

Distance = Literal["total_variation", "jensen_shannon", "one_minus_cosine"]


class Remembrance(ArmQuantity):
    """Mean Effective Remembrance at t = length - kept * T: the weight of all but the last `kept` contexts."""

    kind: Literal["remembrance"] = "remembrance"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    distance: Distance = "total_variation"
    kept_contexts: PositiveFloat = 1.0
