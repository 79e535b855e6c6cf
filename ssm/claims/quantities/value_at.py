"""The mean of any column at given values."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.columns import by_sample, listed, maximum, rows_where
from ssm.claims.estimate import Reading, UndecidableError, log_mean_reading, mean_reading
from ssm.claims.panel_tables import PanelTables, end_in_tokens, require_measured_to, why_not_at
from ssm.claims.quantity import ROUNDING, ArmQuantity, ComparisonScale, LimitedQuantity
from ssm.claims.reader import ColumnReader
from ssm.claims.series import Series
from ssm.claims.table_numbers import mean_over
from ssm.specs.base import Name
from ssm.specs.measurements.base import Measurement


class ValueAt(ColumnReader, LimitedQuantity, ArmQuantity):
    """The mean of one column of a measurement's table, over selected rows.

    With `times_context` k, only rows at kT are used. These are rows whose key `along` is kT, or bins in [3/4 kT, kT) if
    the table has bins. All sequences (or other random samples) have the same weight.
    """

    agreeing: ClassVar[bool] = True
    kind: Literal["value_at"] = "value_at"
    times_context: PositiveFloat | None = (
        None  # k: use only rows at kT, where T is the training context; none: all rows
    )
    along: Name = "position"  # the key that is compared with kT
    # plain: compare arms by their difference. logarithm: the column is a logarithm (a loss in nats); the number is its
    # exponential. ratio: compare arms by their ratio; the column must be positive
    scale: ComparisonScale = "plain"

    def named_columns(self) -> dict[str, tuple[str, str]]:
        return super().named_columns() | (
            {} if self.times_context is None else {"along": (self.measurement, self.along)}
        )

    def why_not_in(self, measurement: Measurement, series: Series) -> str | None:
        if self.times_context is None:
            return None
        return why_not_at(measurement, end_in_tokens(series, self.times_context))

    @property
    def rounding(self) -> float:
        if self.limits is None or self.scale != "plain":
            return ROUNDING
        return ROUNDING * max(map(abs, self.limits))

    @property
    def read_on(self) -> ComparisonScale:
        return self.scale

    def read(self, panel: PanelTables, series: Series) -> Reading:
        return mean_reading(self._by_sample(panel, series))

    def read_logarithm(self, panel: PanelTables, series: Series) -> Reading:
        return log_mean_reading(self._by_sample(panel, series))

    def _by_sample(self, panel: PanelTables, series: Series) -> np.ndarray:
        """The value of each sequence. (S,)"""
        table, schema = panel.any_table(series, self.measurement)
        rows = panel.rows(table, schema, self.where)
        if self.times_context is None:
            return by_sample(rows, schema, self.column)
        stop = end_in_tokens(series, self.times_context)
        if self.along not in schema.columns and f"{self.along}_to" in schema.columns:
            require_measured_to(maximum(rows[f"{self.along}_to"]), stop, series)
            return mean_over(rows, self.column, 3 * stop // 4, stop, schema.sample or "sequence")[
                self.column
            ].to_numpy()
        selected = rows_where(rows, schema, {self.along: stop})
        if selected.is_empty():
            raise UndecidableError(
                f"'{series.arm}' is measured at {self.along} {listed(rows, self.along)} at this scale; {stop} is needed"
            )
        return by_sample(selected, schema, self.column)

    def describe(self, panel: PanelTables) -> str:
        where = [f"{column} {value}" for column, value in self.where.items()]
        if self.times_context is not None:
            where.append(f"{self.along} {self.times_context:g}T")
        at = f" at {', '.join(where)}" if where else ""
        mean = "exponential of the mean" if self.scale == "logarithm" else "mean"
        return f"{mean} {self.column} of {panel.label(self.arm)} in {self.measurement}{at}"
