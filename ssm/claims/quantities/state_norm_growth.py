"""Norm of the state far out over that at the end of the training context."""

from __future__ import annotations

from ssm.base.curves import state_norm_at
from ssm.claims.estimate import Reading, log_mean_reading
from ssm.claims.panel import Panel, tokens
from ssm.claims.quantities.base import SeriesEstimator
from ssm.claims.quantities.positions import state_statistics
from ssm.specs.figure import Series
from ssm.specs.quantities.state_norm_growth import StateNormGrowth


class StateNormGrowthEstimator(SeriesEstimator[StateNormGrowth]):
    """A ratio of means over sequences."""

    scale = "logarithm"

    def read(self, panel: Panel, series: Series) -> Reading:
        stop = tokens(series, self.spec)
        table = state_statistics(panel, series, self.spec, stop)
        late = state_norm_at(table, stop)["norm"].to_numpy()
        early = state_norm_at(table, series.context)["norm"].to_numpy()
        return log_mean_reading(late) - log_mean_reading(early)

    def describe(self, panel: Panel) -> str:
        return f"mean norm of the whole state of {panel.label(self.spec.arm)} at {self.spec.times_context:g}T / at T"
