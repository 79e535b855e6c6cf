"""The exponent by which a cost grows with the length."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from ssm.base.lazy import polars as pl
from ssm.base.seeds import numpy_generator
from ssm.claims.estimate import DRAWS, LEVEL, Estimate
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity

COSTS = {
    "training_step": "time of a training step",
    "training_memory": "bytes kept for the backward pass",
    "decoding_step": "time of a decoding step",
    "state": "bytes of the state",
}


class CostExponent(ModelQuantity):
    """p of cost ~ T^p, the slope over all measured lengths on logarithmic scales, for one named model (ls Table 1)."""

    kind: Literal["cost_exponent"] = "cost_exponent"
    reads: ClassVar[tuple[str, ...]] = ("cost",)
    cost: Literal["training_step", "training_memory", "decoding_step", "state"]

    @property
    def timed(self) -> bool:
        return self.cost in ("training_step", "decoding_step")

    def estimate(self, panel: PanelTables) -> Estimate:
        """Bytes give one exponent, exactly; seconds one a round: a bootstrap of the median over rounds."""
        rows = self.rows(panel).filter(pl.col("cost") == self.cost).sort("length", "repeat")
        logs = np.log(rows["value"].to_numpy().reshape(rows["length"].n_unique(), -1))  # (lengths, rounds)
        exponents = np.polyfit(np.log(rows["length"].unique().sort()), logs, 1)[0]  # (rounds,): as the machine was then
        value = float(np.median(exponents))
        if len(exponents) < 2:
            return self.exact(value, panel)
        generator = numpy_generator(0, "cost exponent")
        draws = np.median(generator.choice(exponents, (DRAWS, len(exponents))), axis=1)
        low, high = (float(np.quantile(draws, tail)) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        how = f"bootstrap of the median over {len(exponents)} rounds"
        return Estimate(value, low, high, how, self.words(panel))

    def words(self, panel: PanelTables) -> str:
        return f"p of {COSTS[self.cost]} ~ T^p, the slope over all T on logarithmic scales, {self.model}"
