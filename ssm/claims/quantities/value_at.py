"""The mean of any column at a setting."""

from __future__ import annotations

import numpy as np

from ssm.base.columns import by_sample, chosen, listed, maximum
from ssm.base.curves import mean_over
from ssm.claims.estimate import Reading, UndecidableError, log_mean_reading, mean_reading
from ssm.claims.panel import Panel, insist_on
from ssm.claims.quantities.base import ANY, SeriesEstimator
from ssm.specs.figure import Series
from ssm.specs.quantities.value_at import ValueAt


class ValueAtEstimator(SeriesEstimator[ValueAt]):
    """A mean over what was drawn at random, of which one seed's interval is made too."""

    agreeing = True

    def __init__(self, spec: ValueAt):
        super().__init__(spec)
        self.scale = spec.scale
        self.limits = spec.limits or ANY

    def read(self, panel: Panel, series: Series) -> Reading:
        return mean_reading(self._by_sample(panel, series))

    def read_logarithm(self, panel: Panel, series: Series) -> Reading:
        return log_mean_reading(self._by_sample(panel, series))

    def _by_sample(self, panel: Panel, series: Series) -> np.ndarray:
        """(S,)"""
        spec = self.spec
        table, schema = panel.any_table(series, spec.measurement)
        rows = panel.rows(table, schema, spec.where)
        if spec.times_context is None:
            return by_sample(rows, schema, spec.column)
        stop = round(spec.times_context * series.context)
        if spec.along not in schema.columns and f"{spec.along}_to" in schema.columns:
            insist_on(maximum(rows[f"{spec.along}_to"]), stop, series)
            return mean_over(rows, spec.column, 3 * stop // 4, stop, schema.sample or "sequence")[
                spec.column
            ].to_numpy()
        there = chosen(rows, schema, {spec.along: stop})
        if there.is_empty():
            raise UndecidableError(
                f"'{series.arm}' is measured at {spec.along} {listed(rows, spec.along)} at this scale, {stop} is needed"
            )
        return by_sample(there, schema, spec.column)

    def describe(self, panel: Panel) -> str:
        spec = self.spec
        where = [f"{column} {value}" for column, value in spec.where.items()]
        if spec.times_context is not None:
            where.append(f"{spec.along} {spec.times_context:g}T")
        at = f" at {', '.join(where)}" if where else ""
        mean = "exponential of the mean" if spec.scale == "logarithm" else "mean"
        return f"{mean} {spec.column} of {panel.label(spec.arm)} in {spec.measurement}{at}"
