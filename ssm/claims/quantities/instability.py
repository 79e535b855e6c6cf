"""How unstable a training run is."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ssm.base.counting import counted
from ssm.base.tables import read_provenance
from ssm.base.tables.metrics import CEILING
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ANY, ArmQuantity
from ssm.claims.series import Series
from ssm.specs.measurement import MeasurementTask

WINDOW = 16  # rows whose median is the level
FEWEST = 4  # rows of the first level: spikes are most frequent at the start
NORMAL = 1.4826  # standard deviation of a normal distribution / its median absolute deviation


class Instability(ArmQuantity):
    """How far the training loss rises above its lowest level so far (ls Figure 7), from the learning curve.

    The level before a row is the median of the 16 rows before it (at the start, of at least 4). The rise of a row is
    its loss minus the lowest level so far. The noise is the standard deviation of the later half of the rows around
    their levels, from the median absolute deviation. While the loss falls, the level lags 8 rows behind, so early
    rises are underestimated. A run counts as diverged when its loss exceeds 2 log V. The last row of a diverged run
    is set to 2 log V, and the largest rise includes it.
    """

    kind: Literal["instability"] = "instability"
    reads: ClassVar[tuple[str, ...]] = ("learning_curve",)
    # largest_rise: in nats. diverged: share of seeds that diverged. spiked: share of seeds that diverged or have a
    # largest rise above `noises` times the noise
    what: Literal["largest_rise", "spiked", "diverged"]
    # threshold of a spike, in units of the noise. The largest rise of 100 to 300 rows of normal noise is about 3 and
    # rarely 5
    noises: PositiveFloat = 6.0

    @property
    def bounds(self) -> tuple[float, float]:
        return ANY if self.what == "largest_rise" else (0.0, 1.0)

    @property
    def of_two_kinds(self) -> bool:
        return self.what != "largest_rise"

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """Noise within a run does not measure the spread between runs, so a reading has no sequences."""
        table = panel.table(series, self.measurement_name("learning_curve"), "learning_curve").sort("step")
        losses = table["loss"].to_numpy()
        diverged = bool(np.isnan(losses).any())
        if self.what == "diverged" or (diverged and self.what == "spiked"):
            return Reading(float(diverged))
        if diverged:
            return Reading(rise_of_diverged(losses, self._guess(panel, series)))
        if len(losses) < 2 * WINDOW:
            raise UndecidableError(
                f"the learning curve of '{series.arm}' has {counted(len(losses), 'row')}; {2 * WINDOW} are needed"
            )
        rises, noise = rises_and_noise(losses)
        largest = float(rises.max())
        return Reading(largest if self.what == "largest_rise" else float(largest > self.noises * noise))

    def _guess(self, panel: PanelTables, series: Series) -> float:
        """log V, the loss of a uniform guess (nats), from the provenance of the table."""
        path = panel.folder / f"{series.tables[self.measurement_name('learning_curve')]}.parquet"
        run = MeasurementTask.parse(read_provenance(path)["task"], str(path)).run
        assert run is not None  # a learning curve is of one
        return math.log(run.data.vocab_size)

    def describe(self, panel: PanelTables) -> str:
        arm = panel.label(self.arm)
        if self.what == "largest_rise":
            return f"largest rise of the training loss of {arm} above its lowest level so far, nats"
        if self.what == "diverged":
            return f"share of runs of {arm} that diverged"
        return f"share of runs of {arm} that diverged or have a rise above {self.noises:g} times the noise"


def rise_of_diverged(losses: np.ndarray, guess: float) -> float:
    """The largest rise of a diverged run, with its last row set to the ceiling above which a run counts as diverged.

    How far its loss would have risen is unknown. Without this number it would count as no rise.

    Args:
        losses: (K,) all rows, K >= 1, the last one NaN.
        guess: log V, nats. It is placed before the first row, so that divergence in the first row is a rise too.
    """
    known = np.where(np.isnan(losses), CEILING * guess, losses)
    rises, _ = rises_and_noise(np.concatenate([np.full(FEWEST, guess), known]))
    return float(rises.max())


def rises_and_noise(losses: np.ndarray) -> tuple[np.ndarray, float]:
    """The rise of each row above the lowest level before it, and the standard deviation of the later rows' noise.

    While the loss falls, its level lags 8 rows behind: early rises are underestimated by the fall over 8 rows.

    Args:
        losses: (K,) consecutive rows, K > FEWEST.

    Returns:
        Rises (K - FEWEST,), one for each row that has FEWEST rows before it, negative while the loss falls; and noise.
    """
    levels = np.array([np.median(losses[max(0, row - WINDOW) : row]) for row in range(FEWEST, len(losses))])
    rows = losses[FEWEST:]
    distances = (rows - levels)[len(losses) // 2 - FEWEST :]  # the later half, where the level lags least
    noise = NORMAL * float(np.median(np.abs(distances - np.median(distances))))
    return rows - np.minimum.accumulate(levels), noise
