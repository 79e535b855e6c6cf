"""The spec of the growth of the state's norm."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity


class StateNormGrowth(ArmQuantity):
    """Mean norm of the whole state at kT / at T."""

    kind: Literal["state_norm_growth"] = "state_norm_growth"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    times_context: PositiveFloat
