"""Perplexity far out over that at the end of the training context."""

from __future__ import annotations

from ssm.base.curves import mean_loss
from ssm.claims.estimate import Reading, mean_reading
from ssm.claims.panel import Panel, tokens
from ssm.claims.quantities.base import SeriesEstimator
from ssm.claims.quantities.positions import at_end, last_quarter, position_loss
from ssm.specs.figure import Series
from ssm.specs.quantities.perplexity_growth import PerplexityGrowth


class PerplexityGrowthEstimator(SeriesEstimator[PerplexityGrowth]):
    """Paired by sequence."""

    scale = "logarithm"

    def read(self, panel: Panel, series: Series) -> Reading:
        stop = tokens(series, self.spec)
        table = position_loss(panel, series, self.spec, max(stop, series.context))
        early = mean_loss(table, series.context // 2, series.context)["loss"].to_numpy()
        return mean_reading(last_quarter(table, stop) - early)

    def describe(self, panel: Panel) -> str:
        return f"perplexity of {panel.label(self.spec.arm)} at {at_end(self.spec.times_context)} / at [0.5T, T)"
