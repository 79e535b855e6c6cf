"""A number of the figure's own table."""

from __future__ import annotations

import math
from dataclasses import replace

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel import OWN, Panel, with_own_series
from ssm.claims.quantities.base import FigureEstimator
from ssm.claims.quantities.curve import estimator_of
from ssm.specs.quantities.own_table import OwnTable


class OwnTableEstimator(FigureEstimator[OwnTable]):
    """As of an arm with one seed; without draws exact, and else over these.

    Rows without draws are of draw 1: read together with rows that have draws, they count there alone.
    """

    def estimate(self, panel: Panel) -> Estimate:
        (name,) = self.spec.names
        own = Panel(with_own_series(panel.task, panel.folder, name), "", panel.folder)
        if not own.task.series:
            raise UndecidableError(f"the figure has no {name} of its own at the scale {panel.task.scale}")
        estimator = estimator_of(self.spec.quantity(OWN))
        (reading,) = estimator.readings(own).values()
        if reading.sequences > 1:
            found = estimator.estimate(own)
            interval = f"{found.interval.partition(' over ')[0]} over {reading.sequences} draws"
            return replace(found, interval=interval, words=self.words(panel))
        value = math.exp(reading.value) if estimator.logarithmic else reading.value
        if not math.isfinite(value):
            raise UndecidableError("not a finite number")
        return self.exact(value, panel)

    def words(self, panel: Panel) -> str:
        return estimator_of(self.spec.quantity(OWN)).words(panel).replace(f" of {OWN} in ", " in ")
