"""Effective Remembrance of the distant past."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.columns import maximum
from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, UndecidableError, log_mean_reading, mean_reading
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ArmQuantity, ComparisonScale
from ssm.claims.series import Series
from ssm.claims.table_numbers import by_sequence, remembrance_curve

Distance = Literal["total_variation", "jensen_shannon", "one_minus_cosine"]


class Remembrance(ArmQuantity):
    """Mean Effective Remembrance (lg Definition 3.3) at t = length - kept_contexts * T.

    It is the effect of all but the last kept_contexts * T tokens: the first t tokens are withheld from the model. T is
    the training context.
    """

    kind: Literal["remembrance"] = "remembrance"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    read_on: ClassVar[ComparisonScale] = "ratio"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    distance: Distance = "total_variation"  # distance between the two predictions
    kept_contexts: PositiveFloat = 1.0  # number of training contexts that the model still reads

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """A mean over sequences, interpolated linearly between the measured t."""
        return mean_reading(self._by_sequence(panel, series))

    def read_logarithm(self, panel: PanelTables, series: Series) -> Reading:
        return log_mean_reading(self._by_sequence(panel, series))

    def _by_sequence(self, panel: PanelTables, series: Series) -> np.ndarray:
        """The value at t for each sequence. (S,)"""
        table = panel.table(series, self.measurement_name("effective_remembrance"), "effective_remembrance")
        length = maximum(table["length"])
        t = length - self.kept_contexts * series.context
        times = remembrance_curve(table, self.distance)["t"].to_numpy()
        if not times[0] <= t <= times[-1]:
            raise UndecidableError(
                f"remembrance of '{series.arm}' is measured for t from {times[0]:,} to {times[-1]:,} at this scale; "
                f"t = {t:,.0f} is needed"
            )
        values = by_sequence(table.filter(pl.col("distance") == self.distance), ["t"], "value")
        return np.array([np.interp(t, times, row) for row in values])

    def describe(self, panel: PanelTables) -> str:
        distance = self.distance.replace("_", " ")
        at = f"t = length - {self.kept_contexts:g}T"
        return f"mean Effective Remembrance ({distance}) of {panel.label(self.arm)}, {at}"
