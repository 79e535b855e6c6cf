"""How a cost grows with the length."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from ssm.base.lazy import polars as pl
from ssm.base.seeds import numpy_generator
from ssm.claims.estimate import DRAWS, LEVEL, Estimate
from ssm.claims.method import Method
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity
from ssm.claims.tails import bootstrap_tails

COSTS = {
    "training_step": "time of a training step",
    "training_memory": "bytes kept for the backward pass",
    "decoding_step": "time of a decoding step",
    "state": "bytes of the state",
}


class CostExponent(ModelQuantity):
    """The exponent p in cost ~ T^p of one model (ls Table 1): the slope over all lengths, on logarithmic scales."""

    kind: Literal["cost_exponent"] = "cost_exponent"
    reads: ClassVar[tuple[str, ...]] = ("cost",)
    # time of a step in training or decoding, bytes kept for the backward pass, or bytes of the state
    cost: Literal["training_step", "training_memory", "decoding_step", "state"]

    @property
    def timed(self) -> bool:
        return self.cost in ("training_step", "decoding_step")

    def estimate(self, panel: PanelTables) -> Estimate:
        """Bytes give one exact exponent. Times give one for each round, and a bootstrap interval of their median."""
        rows = self.rows(panel).filter(pl.col("cost") == self.cost).sort("length", "repeat")
        logs = np.log(rows["value"].to_numpy().reshape(rows["length"].n_unique(), -1))  # (lengths, rounds)
        exponents = np.polyfit(np.log(rows["length"].unique().sort()), logs, 1)[0]  # (rounds,)
        value = float(np.median(exponents))
        if len(exponents) < 2:
            return self.exact(value, panel)
        generator = numpy_generator(0, "cost exponent")
        draws = np.median(generator.choice(exponents, (DRAWS, len(exponents))), axis=1)
        low, high = (float(np.quantile(draws, tail)) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        method = Method("bootstrap of the median", len(exponents), "rounds")
        return Estimate(value, low, high, method, self.words(panel), tails=bootstrap_tails(draws))

    def words(self, panel: PanelTables) -> str:
        model = panel.task.title_of(self.model)
        return f"exponent p of {COSTS[self.cost]} ~ T^p for {model}: slope over all T on logarithmic scales"
