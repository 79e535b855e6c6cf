"""A quantity of a table that belongs to the figure and to no arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.method import DRAWS, Method
from ssm.claims.panel_tables import OWN, PanelTables, with_own_series
from ssm.claims.quantity import FigureQuantity
from ssm.claims.sweep import SOME, OfQuantity
from ssm.specs.base import Spec


class OwnTable(OfQuantity, FigureQuantity):
    """The quantity `of`, read from a table that belongs to the figure and to no arm.

    The number is exact if nothing in the table is random, or if all random draws have the same number. Otherwise its
    interval is over the draws.
    """

    of_figure: ClassVar[bool] = True
    kind: Literal["own_table"] = "own_table"

    @model_validator(mode="after")
    def _of_one_table(self) -> Self:
        quantity = self.quantity()
        if quantity.arms() != (SOME,) or len(quantity.measurement_names) != 1:
            raise ValueError(f"of: '{quantity.kind}' must read one column of one table, and name no other arm")
        return self

    @property
    def rounding(self) -> float:
        return self.quantity().rounding

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        return [], [one.content() for one in measured]

    def estimate(self, panel: PanelTables) -> Estimate:
        """Estimate as for an arm with one seed, whose sequences are the draws.

        Rows without draws are stored as draw 1. Together with rows that have draws, they count in draw 1 only.
        """
        (name,) = self.measurement_names
        own = PanelTables(with_own_series(panel.task, panel.folder, name), "", panel.folder)
        if not own.task.series:
            raise UndecidableError(f"the figure itself has no {name} at the scale {panel.task.scale}")
        quantity = self.quantity(OWN)
        (reading,) = quantity.readings(own).values()
        if reading.sequences > 1 and not reading.agrees(self.rounding):
            found = quantity.estimate(own)
            interval = Method(found.interval.name, reading.sequences, DRAWS)
            return replace(found, interval=interval, words=self.words(panel))
        value = math.exp(reading.value) if quantity.logarithmic else reading.value
        if not math.isfinite(value):
            raise UndecidableError("no finite number")
        return self.exact(value, panel)

    def words(self, panel: PanelTables) -> str:
        return self.quantity(OWN).words(panel).replace(f" of {OWN} in ", " in ").replace(f" for {OWN} in ", " in ")
