"""Perplexity with the full history over that of a restarted model."""

from __future__ import annotations

from ssm.base.curves import paired_log_ratio, ratio_positions
from ssm.claims.estimate import Reading, UndecidableError, mean_reading
from ssm.claims.panel import Panel, tokens
from ssm.claims.quantities.base import SeriesEstimator
from ssm.claims.quantities.positions import at_end, position_loss
from ssm.specs.figure import Series
from ssm.specs.quantities.restart_ratio import RestartRatio


class RestartRatioEstimator(SeriesEstimator[RestartRatio]):
    """The paired ratio, from both losses on the same targets."""

    scale = "logarithm"

    def read(self, panel: Panel, series: Series) -> Reading:
        stop = tokens(series, self.spec)
        other = panel.series(self.spec.restarted or series.arm).get(series.seed)
        if other is None:
            raise UndecidableError(f"the restarted arm '{self.spec.restarted}' has no seed {series.seed}")
        restart = panel.table(other, self.spec.name_of("restart_loss"), "restart_loss")
        if stop not in ratio_positions(restart):
            raise UndecidableError(
                f"the restarted loss of '{other.arm}' is not measured at position {stop:,} at this scale"
            )
        full = position_loss(panel, series, self.spec, stop)
        return mean_reading(paired_log_ratio(full, restart, stop)["value"].to_numpy())

    def describe(self, panel: Panel) -> str:
        other = panel.label(self.spec.restarted) if self.spec.restarted else "the same model"
        end = at_end(self.spec.times_context)
        return f"perplexity of {panel.label(self.spec.arm)} / of {other} restarted T/2 to T tokens before, at {end}"
