"""Perplexity at a position."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.claims.estimate import Reading, mean_reading
from ssm.claims.panel_tables import PanelTables, at_end, end_in_tokens, last_quarter, position_loss_table, why_not_at
from ssm.claims.quantity import ArmQuantity, ComparisonScale
from ssm.claims.series import Series
from ssm.specs.measurements.base import Measurement


class PerplexityAt(ArmQuantity):
    """Position-wise perplexity on the targets [3/4 kT, kT), where T is the training context."""

    kind: Literal["perplexity_at"] = "perplexity_at"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
    read_on: ClassVar[ComparisonScale] = "logarithm"
    times_context: PositiveFloat  # k

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        return why_not_at(measurement, end_in_tokens(series, self.times_context))

    def read(self, panel: PanelTables, series: Series) -> Reading:
        stop = end_in_tokens(series, self.times_context)
        return mean_reading(last_quarter(position_loss_table(panel, series, self, stop), stop))

    def describe(self, panel: PanelTables) -> str:
        return f"perplexity of {panel.label(self.arm)} at {at_end(self.times_context)}"
