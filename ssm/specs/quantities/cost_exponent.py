"""The spec of the growth of a cost."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import ModelQuantity


class CostExponent(ModelQuantity):
    """p of cost ~ T^p, the slope over all measured lengths on logarithmic scales, for one named model (ls Table 1)."""

    kind: Literal["cost_exponent"] = "cost_exponent"
    reads: ClassVar[tuple[str, ...]] = ("cost",)
    cost: Literal["training_step", "training_memory", "decoding_step", "state"]

    @property
    def timed(self) -> bool:
        return self.cost in ("training_step", "decoding_step")
