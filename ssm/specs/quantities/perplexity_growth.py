"""The spec of the growth of the perplexity."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity


class PerplexityGrowth(ArmQuantity):
    """Position-wise perplexity at [3/4 kT, kT) / the same at [T/2, T)."""

    kind: Literal["perplexity_growth"] = "perplexity_growth"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    times_context: PositiveFloat
