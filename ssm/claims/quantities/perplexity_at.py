"""Perplexity at a position."""

from __future__ import annotations

from ssm.claims.estimate import Reading, mean_reading
from ssm.claims.panel import Panel, tokens
from ssm.claims.quantities.base import SeriesEstimator
from ssm.claims.quantities.positions import at_end, last_quarter, position_loss
from ssm.specs.figure import Series
from ssm.specs.quantities.perplexity_at import PerplexityAt


class PerplexityAtEstimator(SeriesEstimator[PerplexityAt]):
    """The exponential of a mean loss."""

    scale = "logarithm"

    def read(self, panel: Panel, series: Series) -> Reading:
        stop = tokens(series, self.spec)
        return mean_reading(last_quarter(position_loss(panel, series, self.spec, stop), stop))

    def describe(self, panel: Panel) -> str:
        return f"perplexity of {panel.label(self.spec.arm)} at {at_end(self.spec.times_context)}"
