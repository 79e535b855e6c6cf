"""Norm of the state far beyond the training context / at its end."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.claims.estimate import Reading, log_mean_reading
from ssm.claims.panel_tables import PanelTables, end_in_tokens, state_statistics_table, why_no_state_at
from ssm.claims.quantity import ArmQuantity, ComparisonScale
from ssm.claims.series import Series
from ssm.claims.table_numbers import state_norm_at
from ssm.specs.measurements.base import Measurement


class StateNormGrowth(ArmQuantity):
    """Mean norm of the whole state at position kT, divided by that at T. T is the training context."""

    kind: Literal["state_norm_growth"] = "state_norm_growth"
    reads: ClassVar[tuple[str, ...]] = ("state_statistics",)
    read_on: ClassVar[ComparisonScale] = "logarithm"
    times_context: PositiveFloat  # k

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        return why_no_state_at(measurement, series.context, end_in_tokens(series, self.times_context))

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """A ratio of means over sequences."""
        stop = end_in_tokens(series, self.times_context)
        table = state_statistics_table(panel, series, self, stop)
        late = state_norm_at(table, stop)["norm"].to_numpy()
        early = state_norm_at(table, series.context)["norm"].to_numpy()
        return log_mean_reading(late) - log_mean_reading(early)

    def describe(self, panel: PanelTables) -> str:
        return f"mean norm of the whole state of {panel.label(self.arm)} at {self.times_context:g}T / at T"
