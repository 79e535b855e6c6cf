"""The fraction of heads whose state drifts."""

from __future__ import annotations

import math

import numpy as np

from ssm.base.curves import head_std_growth
from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, resample
from ssm.claims.panel import Panel, by_sequence, tokens
from ssm.claims.quantities.base import SeriesEstimator
from ssm.claims.quantities.positions import state_statistics
from ssm.specs.figure import Series
from ssm.specs.quantities.drifting_heads import DriftingHeads


class DriftingHeadsEstimator(SeriesEstimator[DriftingHeads]):
    """One seed's interval is a bootstrap over sequences."""

    limits = (0.0, 1.0)

    def read(self, panel: Panel, series: Series) -> Reading:
        start, stop, factor = series.context, tokens(series, self.spec), self.spec.factor
        table = state_statistics(panel, series, self.spec, stop)
        growth = head_std_growth(table, start, stop)["growth"].to_numpy()
        value = float((growth > factor).mean()) if not np.isnan(growth).any() else math.nan
        heads = table.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
        at = [heads.filter(pl.col("position") == position) for position in (start, stop)]
        means_early, means_late = resample(*(by_sequence(rows, ["layer", "head"], "std") for rows in at))
        draws = (means_late > factor * means_early).mean(axis=1)  # each (DRAWS, heads)
        return Reading(value, draws=draws, sequences=at[0]["sequence"].n_unique())

    def describe(self, panel: Panel) -> str:
        growth = f"grows more than {self.spec.factor:g}-fold from T to {self.spec.times_context:g}T"
        return f"fraction of heads of {panel.label(self.spec.arm)} whose state's std {growth}"
