"""Effective Remembrance of what lies far back."""

from __future__ import annotations

import numpy as np

from ssm.base.columns import maximum
from ssm.base.curves import remembrance_curve
from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, UndecidableError, log_mean_reading, mean_reading
from ssm.claims.panel import Panel, by_sequence
from ssm.claims.quantities.base import SeriesEstimator
from ssm.specs.figure import Series
from ssm.specs.quantities.remembrance import Remembrance


class RemembranceEstimator(SeriesEstimator[Remembrance]):
    """A mean over sequences, linear between the measured t."""

    scale = "ratio"
    limits = (0.0, 1.0)

    def read(self, panel: Panel, series: Series) -> Reading:
        return mean_reading(self._by_sequence(panel, series))

    def read_logarithm(self, panel: Panel, series: Series) -> Reading:
        return log_mean_reading(self._by_sequence(panel, series))

    def _by_sequence(self, panel: Panel, series: Series) -> np.ndarray:
        """At t, of each sequence. (S,)"""
        table = panel.table(series, self.spec.name_of("effective_remembrance"), "effective_remembrance")
        length = maximum(table["length"])
        t = length - self.spec.kept_contexts * series.context
        times = remembrance_curve(table, self.spec.distance)["t"].to_numpy()
        if not times[0] <= t <= times[-1]:
            raise UndecidableError(
                f"remembrance of '{series.arm}' is measured for t from {times[0]:,} to {times[-1]:,} at this scale, "
                f"t = {t:,.0f} is needed"
            )
        values = by_sequence(table.filter(pl.col("distance") == self.spec.distance), ["t"], "value")
        return np.array([np.interp(t, times, row) for row in values])

    def describe(self, panel: Panel) -> str:
        distance = self.spec.distance.replace("_", " ")
        at = f"t = length - {self.spec.kept_contexts:g}T"
        return f"mean Effective Remembrance ({distance}) of {panel.label(self.spec.arm)}, {at}"
