"""A curve's largest or smallest value."""

from __future__ import annotations

import numpy as np

from ssm.base.columns import split
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.claims.estimate import NOTHING
from ssm.claims.panel import Panel
from ssm.claims.quantities.curve import CurveEstimator, Points
from ssm.specs.figure import Series
from ssm.specs.quantities.extreme import Extreme


class ExtremeEstimator(CurveEstimator[Extreme]):
    """Of every seed by itself: noise moves it outwards, so that a bound that it keeps is kept."""

    fewest = 1  # of one point it is that point's value

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = y.max(axis=1) if self.spec.which == "largest" else y.min(axis=1)
        return found

    def points_of(self, rows: pl.DataFrame, schema: Schema, series: Series, panel: Panel) -> Points:
        """Of several curves all points, one after the other."""
        if self.spec.among is None:
            return super().points_of(rows, schema, series, panel)
        read = super().points_of
        curves = [read(some, schema, series, panel) for some in split(rows, schema, self.spec.among)]
        x, y = (np.concatenate([getattr(one, name) for one in curves]) for name in ("x", "y"))
        resampled = all(len(one.draws) for one in curves)  # a curve of one sequence is not
        draws = np.concatenate([one.draws for one in curves], axis=-1) if resampled else NOTHING
        return Points(x, y, draws, min(one.sequences for one in curves))

    def called(self) -> str:
        among = f" among all {self.spec.among}s" if self.spec.among is not None else ""
        return f"{self.spec.which} value{among}"
