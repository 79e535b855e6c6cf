"""The spec of the perplexity at a position."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity


class PerplexityAt(ArmQuantity):
    """Position-wise perplexity at [3/4 kT, kT)."""

    kind: Literal["perplexity_at"] = "perplexity_at"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    times_context: PositiveFloat
