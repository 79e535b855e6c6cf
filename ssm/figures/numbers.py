"""A quantity of an arm, seed by seed, as figures show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssm.claims.estimate import UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import SeedQuantity
from ssm.claims.series import PlannedFigure


@dataclass(frozen=True)
class Numbers:
    """One arm's numbers."""

    seeds: np.ndarray  # (seeds,) empty: it has none, because a run diverged or they cannot be read
    logarithmic: bool  # their mean is that of their logarithms

    def summary(self) -> tuple[float, float, float]:
        """Mean and range over the seeds; NaN where there is none."""
        if not len(self.seeds):
            return np.nan, np.nan, np.nan
        with np.errstate(divide="ignore"):
            mean = np.exp(np.log(self.seeds).mean()) if self.logarithmic else self.seeds.mean()
        return float(mean), float(self.seeds.min()), float(self.seeds.max())


def numbers_of_arm(quantity: SeedQuantity, arm: str, task: PlannedFigure, tables: Path, panel: str) -> Numbers | None:
    """The numbers of an arm; None where it does not exist at this scale, or is not measured so.

    Raises:
        TableError: a planned table is missing or broken.
    """
    own = [series for series in task.series if (series.panel, series.arm) == (panel, arm)]
    if not own or not all(set(quantity.names) <= set(series.tables) for series in own):
        return None
    try:
        readings = quantity.readings(PanelTables(task, panel, tables))
    except UndecidableError:
        return Numbers(np.empty(0), quantity.logarithmic)
    values = np.array([reading.value for reading in readings.values()])
    with np.errstate(over="ignore"):
        values = np.exp(values) if quantity.logarithmic else values
    return Numbers(values if np.isfinite(values).all() else np.empty(0), quantity.logarithmic)
