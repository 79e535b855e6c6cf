"""The factor by which the states of heads drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, resample
from ssm.claims.panel_tables import PanelTables, end_in_tokens, state_statistics_table, why_no_state_at
from ssm.claims.quantity import ArmQuantity, ComparisonScale
from ssm.claims.series import Series
from ssm.claims.table_numbers import by_sequence, head_std_growth
from ssm.specs.measurements.base import Measurement

OVER_HEADS: dict[str, Callable[..., Any]] = {"mean": np.mean, "median": np.median, "largest": np.max}


class HeadDrift(ArmQuantity):
    """The factor by which the standard deviation of a head's state changes from T to kT, up or down. It is at least 1.

    `heads` says which of all heads is read: the geometric mean, the median, or the largest factor.
    """

    kind: Literal["head_drift"] = "head_drift"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    read_on: ClassVar[ComparisonScale] = "logarithm"
    times_context: PositiveFloat  # k: the later position is kT, where T is the training context
    heads: Literal["mean", "median", "largest"] = "mean"  # the number that is read of all heads

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        return why_no_state_at(measurement, series.context, end_in_tokens(series, self.times_context))

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """With one seed, the interval is a bootstrap over sequences."""
        start, stop, over_heads = series.context, end_in_tokens(series, self.times_context), OVER_HEADS[self.heads]
        table = state_statistics_table(panel, series, self, stop)
        heads = table.filter(pl.col("layer") >= 0, pl.col("head") >= 0)
        at = [heads.filter(pl.col("position") == position) for position in (start, stop)]
        means_early, means_late = resample(*(by_sequence(rows, ["layer", "head"], "std") for rows in at))
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = np.abs(np.log(head_std_growth(table, start, stop)["growth"].to_numpy()))  # (heads,)
            draws = over_heads(np.abs(np.log(means_late / means_early)), axis=1)  # of (DRAWS, heads)
        return Reading(float(over_heads(changes)), draws=draws, sequences=at[0]["sequence"].n_unique())

    def describe(self, panel: PanelTables) -> str:
        which = {"mean": "geometric mean", "median": "median", "largest": "largest value"}[self.heads]
        change = f"the factor by which the std of the state changes from T to {self.times_context:g}T"
        return f"{which} over all heads of {panel.label(self.arm)} of {change}, up or down"
