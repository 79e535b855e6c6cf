"""How the remembrance curves under two distances differ in shape."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from ssm.base.lazy import polars as pl
from ssm.claims.estimate import Reading, resample
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantities.remembrance import Distance
from ssm.claims.quantity import SeriesQuantity
from ssm.claims.series import Series
from ssm.claims.table_numbers import by_sequence, remembrance_curve


class ShapeDifference(SeriesQuantity):
    """The difference in shape between the remembrance curves of one arm under two distances.

    Each curve is a mean over sequences, scaled to the range [0, 1]. The result is the largest absolute difference over
    all t. It is 0 for curves that differ only in offset and scale.
    """

    kind: Literal["shape_difference"] = "shape_difference"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    distance: Distance  # the first distance between predictions
    with_distance: Distance = "total_variation"  # the second distance

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """With one seed, the interval is a bootstrap over sequences."""
        table = panel.table(series, self.measurement_name("effective_remembrance"), "effective_remembrance")
        names = (self.distance, self.with_distance)
        means = [remembrance_curve(table, name)["value"].to_numpy()[None] for name in names]
        curves = [by_sequence(table.filter(pl.col("distance") == name), ["t"], "value") for name in names]
        value = float(_largest_difference(*means)[0])
        return Reading(value, draws=_largest_difference(*resample(*curves)), sequences=len(curves[0]))

    def describe(self, panel: PanelTables) -> str:
        names = " and ".join(name.replace("_", " ") for name in (self.distance, self.with_distance))
        return (
            f"largest difference over t between the mean remembrance of {panel.label(self.arm)} under {names}, "
            "each scaled to the range 0 to 1"
        )


def _largest_difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The largest difference between the rows of two sets of curves, each row scaled to [0, 1].

    (R, K), (R, K) -> (R,); NaN if a curve is constant.
    """
    with np.errstate(invalid="ignore"):
        shapes = [(x - x.min(axis=1, keepdims=True)) / np.ptp(x, axis=1, keepdims=True) for x in (first, second)]
    return np.abs(shapes[0] - shapes[1]).max(axis=1)
