"""The numbers that claims are judged by, of every arm and seed, for drawings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssm.claims.estimate import UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.curve import numbers_of
from ssm.specs.drawings.base import QuantityDrawing
from ssm.specs.figure import FigureTask, Series


@dataclass(frozen=True)
class Numbers:
    """A quantity of one arm of one panel."""

    series: Series  # the arm's first
    values: np.ndarray  # (seeds,), in the seeds' order; NaN where a seed has none

    @property
    def mean(self) -> float:
        """Over seeds; NaN where one has no finite number: the others' mean would look better than the arm is."""
        return float(self.values.mean())


def numbers(drawing: QuantityDrawing, task: FigureTask, tables: Path, panel: str) -> list[Numbers]:
    """The drawing's quantity of every arm that has what it reads, in the plan's order.

    Raises:
        TableError: a planned table is missing or broken.
    """
    here, found = Panel(task, panel, tables), []
    own = [series for series in task.series if series.panel == panel and set(drawing.names) <= set(series.tables)]
    own = [series for series in own if drawing.families is None or series.family in drawing.families]
    for arm in dict.fromkeys(series.arm for series in own):
        seeds = [series for series in own if series.arm == arm]
        try:
            given = numbers_of(drawing.quantity(arm), here)
        except UndecidableError:  # a run that diverged, or one that is not measured so far
            given = {}
        values = np.array([given.get(series.seed, np.nan) for series in seeds])
        found.append(Numbers(seeds[0], np.where(np.isfinite(values), values, np.nan)))
    return found
