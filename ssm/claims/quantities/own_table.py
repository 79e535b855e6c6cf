"""A number of the figure's own table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import OWN, PanelTables, with_own_series
from ssm.claims.quantity import FigureQuantity, SeedQuantity
from ssm.claims.sweep import SOME, Of, quantity_of
from ssm.specs.base import Spec


class OwnTable(FigureQuantity):
    """`of` (a quantity without its arm) of a table that the figure has for itself, and no arm: one of numbers alone.

    Exact where nothing was drawn at random; else over the draws.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # any
    of_figure: ClassVar[bool] = True
    kind: Literal["own_table"] = "own_table"
    of: Of

    @model_validator(mode="after")
    def _of_one_table(self) -> Self:
        quantity = self.quantity(SOME)
        if quantity.arms() != (SOME,) or len(quantity.names) != 1:
            raise ValueError(f"of: '{quantity.kind}' is of one column of one table, without another arm")
        return self

    def quantity(self, arm: str) -> SeedQuantity:
        """What is read of the table, which stands for an arm's."""
        return quantity_of(self.of, arm)

    @property
    def rounding(self) -> float:
        return self.quantity(SOME).rounding

    @property
    def names(self) -> tuple[str, ...]:
        return self.quantity(SOME).names

    def named(self) -> dict[str, tuple[str, str | None]]:
        return {f"of.{field}": one for field, one in self.quantity(SOME).named().items()}

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        return [], [one.content() for one in measured]

    def estimate(self, panel: PanelTables) -> Estimate:
        """As of an arm with one seed; without draws exact, and else over these.

        Rows without draws are of draw 1: read together with rows that have draws, they count there alone.
        """
        (name,) = self.names
        own = PanelTables(with_own_series(panel.task, panel.folder, name), "", panel.folder)
        if not own.task.series:
            raise UndecidableError(f"the figure has no {name} of its own at the scale {panel.task.scale}")
        quantity = self.quantity(OWN)
        (reading,) = quantity.readings(own).values()
        if reading.sequences > 1:
            found = quantity.estimate(own)
            interval = f"{found.interval.partition(' over ')[0]} over {reading.sequences} draws"
            return replace(found, interval=interval, words=self.words(panel))
        value = math.exp(reading.value) if quantity.logarithmic else reading.value
        if not math.isfinite(value):
            raise UndecidableError("not a finite number")
        return self.exact(value, panel)

    def words(self, panel: PanelTables) -> str:
        return self.quantity(OWN).words(panel).replace(f" of {OWN} in ", " in ")
