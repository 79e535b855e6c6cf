"""Tables that are read at a position, as several quantities need them."""

from __future__ import annotations

import numpy as np

from ssm.base.columns import maximum
from ssm.base.curves import mean_loss
from ssm.base.lazy import polars as pl
from ssm.claims.panel_tables import PanelTables, insist_on
from ssm.claims.quantity import SeriesQuantity
from ssm.claims.series import Series


def position_loss(panel: PanelTables, series: Series, quantity: SeriesQuantity, stop: int) -> pl.DataFrame:
    """The `position_loss` of a series, which reaches to `stop`."""
    table = panel.table(series, quantity.name_of("position_loss"), "position_loss")
    insist_on(maximum(table["position_to"]), stop, series)
    return table


def state_statistics(panel: PanelTables, series: Series, quantity: SeriesQuantity, stop: int) -> pl.DataFrame:
    """The `state_statistics` of a series, which reach to `stop`."""
    table = panel.table(series, quantity.name_of("state_statistics"), "state_statistics")
    insist_on(maximum(table["position"]), stop, series)
    return table


def last_quarter(table: pl.DataFrame, stop: int) -> np.ndarray:
    """Mean loss of each sequence over [3/4 stop, stop). (S,)"""
    return mean_loss(table, 3 * stop // 4, stop)["loss"].to_numpy()


def at_end(k: float) -> str:
    """[3/4 kT, kT) in words."""
    return f"[{0.75 * k:g}T, {k:g}T)"
