"""The largest or smallest value of a curve."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.base.columns import split
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.claims.curve import CurveQuantity, Points
from ssm.claims.estimate import NOTHING
from ssm.claims.panel_tables import PanelTables
from ssm.claims.series import Series
from ssm.specs.base import Name


class Extreme(CurveQuantity):
    """The largest or smallest value of a curve.

    Noise moves it outward. So if the largest value is confirmed to be below a bound, the whole curve is. The opposite
    is biased: of several noisy values, the largest may be above a bound although none is. Compare it with the largest
    of a control (`against` or `against_family`), which is biased in the same way.
    """

    later: ClassVar[frozenset[str]] = frozenset({"among"})
    fewest: ClassVar[int] = 1
    kind: Literal["extreme"] = "extreme"
    which: Literal["largest", "smallest"]  # which extreme value
    among: Name | None = None  # another key: take the extreme of several curves, one for each value of this key

    @model_validator(mode="after")
    def _of_a_table(self) -> Self:
        if self.among is not None and (self.sweep is not None or self.among in (self.x, *self.where)):
            raise ValueError("'among' must be another key of the table than 'x' and those in 'where'; a sweep has none")
        return self

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The extreme of each seed."""
        found: np.ndarray = y.max(axis=1) if self.which == "largest" else y.min(axis=1)
        return found

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: PanelTables) -> Points:
        """With `among`: the points of all curves, one curve after the other."""
        if self.among is None:
            return super().points_of(rows, schema, series, panel)
        read = super().points_of
        curves = [read(some, schema, series, panel) for some in split(rows, schema, self.among)]
        x, y = (np.concatenate([getattr(one, name) for one in curves]) for name in ("x", "y"))
        resampled = all(len(one.draws) for one in curves)  # a curve from one sequence has no draws
        draws = np.concatenate([one.draws for one in curves], axis=-1) if resampled else NOTHING
        return Points(x, y, draws, min(one.sequences for one in curves))

    def describe_number(self) -> str:
        among = f" among all {self.among}s" if self.among is not None else ""
        return f"{self.which} value{among}"
