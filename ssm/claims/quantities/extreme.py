"""A curve's largest or smallest value."""

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
    """The largest value of a curve, or the smallest: what holds of it holds all along the curve."""

    later: ClassVar[frozenset[str]] = frozenset({"among"})
    fewest: ClassVar[int] = 1  # of one point it is that point's value
    kind: Literal["extreme"] = "extreme"
    which: Literal["largest", "smallest"]
    among: Name | None = None  # another key: of the curves at each of its values, the one with the extreme

    @model_validator(mode="after")
    def _of_a_table(self) -> Self:
        if self.among is not None and (self.sweep is not None or self.among in (self.x, *self.where)):
            raise ValueError("'among' is another key of the table than 'x' and those of 'where'; a sweep has none")
        return self

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of every seed by itself: noise moves it outwards, so that a bound that it keeps is kept."""
        found: np.ndarray = y.max(axis=1) if self.which == "largest" else y.min(axis=1)
        return found

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: PanelTables) -> Points:
        """Of several curves all points, one after the other."""
        if self.among is None:
            return super().points_of(rows, schema, series, panel)
        read = super().points_of
        curves = [read(some, schema, series, panel) for some in split(rows, schema, self.among)]
        x, y = (np.concatenate([getattr(one, name) for one in curves]) for name in ("x", "y"))
        resampled = all(len(one.draws) for one in curves)  # a curve of one sequence is not
        draws = np.concatenate([one.draws for one in curves], axis=-1) if resampled else NOTHING
        return Points(x, y, draws, min(one.sequences for one in curves))

    def called(self) -> str:
        among = f" among all {self.among}s" if self.among is not None else ""
        return f"{self.which} value{among}"
