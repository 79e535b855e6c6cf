"""The fraction of heads whose state drifts."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.curves import head_std_growth
from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, resample
from ssm.claims.panel_tables import PanelTables, by_sequence, state_statistics, tokens
from ssm.claims.quantity import ArmQuantity
from ssm.claims.series import Series


class DriftingHeads(ArmQuantity):
    """The fraction of heads for which the standard deviation of the state grows by more than `factor` from T to kT."""

    kind: Literal["drifting_heads"] = "drifting_heads"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    times_context: PositiveFloat  # k: the later position is kT, where T is the training context
    factor: PositiveFloat = 2.0  # growth above which a head drifts

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """With one seed, the interval is a bootstrap over sequences."""
        start, stop, factor = series.context, tokens(series, self), self.factor
        table = state_statistics(panel, series, self, stop)
        growth = head_std_growth(table, start, stop)["growth"].to_numpy()
        value = float((growth > factor).mean()) if not np.isnan(growth).any() else math.nan
        heads = table.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
        at = [heads.filter(pl.col("position") == position) for position in (start, stop)]
        means_early, means_late = resample(*(by_sequence(rows, ["layer", "head"], "std") for rows in at))
        draws = (means_late > factor * means_early).mean(axis=1)  # each (DRAWS, heads)
        return Reading(value, draws=draws, sequences=at[0]["sequence"].n_unique())

    def describe(self, panel: PanelTables) -> str:
        growth = f"grows by more than {self.factor:g} times from T to {self.times_context:g}T"
        return f"fraction of heads of {panel.label(self.arm)} for which the std of the state {growth}"
