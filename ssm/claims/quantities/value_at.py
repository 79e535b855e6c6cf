"""The mean of any column at a setting."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from ssm.base.columns import by_sample, chosen, listed, maximum
from ssm.base.curves import mean_over
from ssm.claims.estimate import Reading, UndecidableError, log_mean_reading, mean_reading
from ssm.claims.panel_tables import PanelTables, insist_on
from ssm.claims.quantity import ANY, ROUNDING, ArmQuantity, Scale
from ssm.claims.reader import ColumnReader
from ssm.claims.series import Series
from ssm.specs.base import Name

Limits = Annotated[tuple[float, float], Field(strict=False)]


class ValueAt(ColumnReader, ArmQuantity):
    """The mean of one column of a measurement's table, over the rows of a setting.

    With `times_context` k, at kT: the rows whose key `along` is kT, or, where the table has bins, those in
    [3/4 kT, kT). Sequences, or whatever else was drawn at random, count alike.
    """

    agreeing: ClassVar[bool] = True
    kind: Literal["value_at"] = "value_at"
    times_context: PositiveFloat | None = None
    along: Name = "position"
    # plain: arms compare by their difference. logarithm: the column is one (a loss in nats), and the number is its
    # exponential. ratio: arms compare by their ratio, of a column that is positive.
    scale: Scale = "plain"
    limits: Limits | None = None  # the least and the largest value that the column can hold, such as [0, 1]

    @property
    def rounding(self) -> float:
        if self.limits is None or self.scale != "plain":
            return ROUNDING
        return ROUNDING * max(map(abs, self.limits))

    @property
    def read_on(self) -> Scale:
        return self.scale

    @property
    def bounds(self) -> tuple[float, float]:
        return self.limits or ANY

    def read(self, panel: PanelTables, series: Series) -> Reading:
        return mean_reading(self._by_sample(panel, series))

    def read_logarithm(self, panel: PanelTables, series: Series) -> Reading:
        return log_mean_reading(self._by_sample(panel, series))

    def _by_sample(self, panel: PanelTables, series: Series) -> np.ndarray:
        """(S,)"""
        table, schema = panel.any_table(series, self.measurement)
        rows = panel.rows(table, schema, self.where)
        if self.times_context is None:
            return by_sample(rows, schema, self.column)
        stop = round(self.times_context * series.context)
        if self.along not in schema.columns and f"{self.along}_to" in schema.columns:
            insist_on(maximum(rows[f"{self.along}_to"]), stop, series)
            return mean_over(rows, self.column, 3 * stop // 4, stop, schema.sample or "sequence")[
                self.column
            ].to_numpy()
        there = chosen(rows, schema, {self.along: stop})
        if there.is_empty():
            raise UndecidableError(
                f"'{series.arm}' is measured at {self.along} {listed(rows, self.along)} at this scale, {stop} is needed"
            )
        return by_sample(there, schema, self.column)

    def describe(self, panel: PanelTables) -> str:
        where = [f"{column} {value}" for column, value in self.where.items()]
        if self.times_context is not None:
            where.append(f"{self.along} {self.times_context:g}T")
        at = f" at {', '.join(where)}" if where else ""
        mean = "exponential of the mean" if self.scale == "logarithm" else "mean"
        return f"{mean} {self.column} of {panel.label(self.arm)} in {self.measurement}{at}"
