"""Perplexity far beyond the training context / perplexity at its end."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.claims.estimate import Reading, mean_reading
from ssm.claims.panel_tables import (
    PanelTables,
    at_end,
    end_in_tokens,
    last_quarter,
    position_loss_table,
    why_not_at,
    why_not_between,
)
from ssm.claims.quantity import ArmQuantity, ComparisonScale
from ssm.claims.series import Series
from ssm.claims.table_numbers import mean_loss
from ssm.specs.measurements.base import Measurement


class PerplexityGrowth(ArmQuantity):
    """Position-wise perplexity on [3/4 kT, kT), divided by that on [T/2, T). T is the training context."""

    kind: Literal["perplexity_growth"] = "perplexity_growth"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    read_on: ClassVar[ComparisonScale] = "logarithm"
    times_context: PositiveFloat  # k

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        T, end = series.context, end_in_tokens(series, self.times_context)
        return why_not_at(measurement, end) or why_not_between(measurement, T // 2, T, "arm")

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """Paired by sequence."""
        stop = end_in_tokens(series, self.times_context)
        table = position_loss_table(panel, series, self, max(stop, series.context))
        early = mean_loss(table, series.context // 2, series.context)["loss"].to_numpy()
        return mean_reading(last_quarter(table, stop) - early)

    def describe(self, panel: PanelTables) -> str:
        return f"perplexity of {panel.label(self.arm)} at {at_end(self.times_context)} / at [0.5T, T)"
