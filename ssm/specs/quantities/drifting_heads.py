"""The spec of the share of drifting heads."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity


class DriftingHeads(ArmQuantity):
    """The fraction of all heads whose state's standard deviation grows by more than `factor` from T to kT."""

    kind: Literal["drifting_heads"] = "drifting_heads"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    times_context: PositiveFloat
    factor: PositiveFloat = 2.0
