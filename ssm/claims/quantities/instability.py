"""How unstable a training is."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.tables import read_provenance
from ssm.base.tables.metrics import CEILING
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ANY, ArmQuantity
from ssm.claims.series import Series
from ssm.specs.measurement import MeasurementTask

WINDOW = 16  # rows that a level is the median of ...
FEWEST = 4  # ... or, at the beginning, where spikes are likeliest, those there are
NORMAL = 1.4826  # standard deviations of a normal distribution in its median absolute deviation


class Instability(ArmQuantity):
    """How the loss of a training rises again (ls figure 7), from its learning curve.

    The level before a row is the median of the 16 rows before it (of 4 or more at the beginning); the row's rise is its
    loss less the lowest level so far. The noise is the standard deviation of the later half of the rows about their
    levels, by their median absolute deviation. A level lags 8 rows behind, so that early rises, on a curve that still
    falls, are understated. A run that diverged counts as if its last row were at 2 log V, above which a run is called
    diverged: that row, or an earlier one, has its largest rise.
    """

    agreeing: ClassVar[bool] = True
    kind: Literal["instability"] = "instability"
    reads: ClassVar[tuple[str, ...]] = ("learning_curve",)
    # largest_rise: in nats. Over seeds a share: spiked, of those whose largest rise is over `noises` times the noise or
    # that diverged; diverged, of those that did.
    what: Literal["largest_rise", "spiked", "diverged"]
    noises: PositiveFloat = 6.0  # of 100 to 300 rows of normal noise the largest rise is about 3, and seldom 5

    @property
    def bounds(self) -> tuple[float, float]:
        return ANY if self.what == "largest_rise" else (0.0, 1.0)

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """A run's own noise is no error of it, so that one seed has no interval."""
        table = panel.table(series, self.name_of("learning_curve"), "learning_curve").sort("step")
        losses = table["loss"].to_numpy()
        diverged = bool(np.isnan(losses).any())
        if self.what == "diverged" or (diverged and self.what == "spiked"):
            return Reading(float(diverged))
        if diverged:
            return Reading(rise_of_diverged(losses, self._guess(panel, series)))
        if len(losses) < 2 * WINDOW:
            raise UndecidableError(f"the learning curve of '{series.arm}' has {len(losses)} rows, not {2 * WINDOW}")
        rises, noise = rises_and_noise(losses)
        largest = float(rises.max())
        return Reading(largest if self.what == "largest_rise" else float(largest > self.noises * noise))

    def _guess(self, panel: PanelTables, series: Series) -> float:
        """log V, the loss of a uniform guess, from what the table says it was made of."""
        path = panel.folder / f"{series.tables[self.name_of('learning_curve')]}.parquet"
        run = MeasurementTask.parse(read_provenance(path)["task"], str(path)).run
        assert run is not None  # a learning curve is of one
        return math.log(run.data.vocab_size)

    def describe(self, panel: PanelTables) -> str:
        arm = panel.label(self.arm)
        if self.what == "largest_rise":
            return f"largest rise of the training loss of {arm} over its lowest level before, nats"
        if self.what == "diverged":
            return f"share of the runs of {arm} that diverged"
        return f"share of the runs of {arm} whose loss rises by over {self.noises:g} times its noise, or diverges"


def rise_of_diverged(losses: np.ndarray, guess: float) -> float:
    """The largest rise of a run that diverged: as if its last row were at the ceiling above which a run has diverged.

    Nobody knows how far its loss would have gone; without a number it would count as no rise at all.

    Args:
        losses: (K,) of all its rows, K >= 1, the last NaN.
        guess: log V, nats, which is taken to stand before the first row, so that a run that diverges there has a rise.
    """
    known = np.where(np.isnan(losses), CEILING * guess, losses)
    rises, _ = rises_and_noise(np.concatenate([np.full(FEWEST, guess), known]))
    return float(rises.max())


def rises_and_noise(losses: np.ndarray) -> tuple[np.ndarray, float]:
    """By how much each row is above the lowest level before it, and the standard deviation of later rows about theirs.

    While the loss falls, its level lags 8 rows behind: early rises are understated by what it falls in so many.

    Args:
        losses: (K,) of rows that follow each other, K > FEWEST.

    Returns:
        (K - FEWEST,) of the rows that have FEWEST rows before them; negative while the loss falls.
    """
    levels = np.array([np.median(losses[max(0, row - WINDOW) : row]) for row in range(FEWEST, len(losses))])
    rows = losses[FEWEST:]
    distances = (rows - levels)[len(losses) // 2 - FEWEST :]  # where it falls least: a level lags behind
    noise = NORMAL * float(np.median(np.abs(distances - np.median(distances))))
    return rows - np.minimum.accumulate(levels), noise
