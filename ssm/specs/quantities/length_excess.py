"""The spec of the excess past t*."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import ArmQuantity


class LengthExcess(ArmQuantity):
    """Largest loss past t* minus the loss at t*, nats (lg Def. 3.2; 0 or less: it length-generalizes)."""

    kind: Literal["length_excess"] = "length_excess"
    reads: ClassVar[tuple[str, ...]] = ("length_class",)
