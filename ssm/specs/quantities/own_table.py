"""The spec of a number of the figure's own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ssm.specs.base import Spec
from ssm.specs.quantities.base import FigureQuantity, Quantity
from ssm.specs.quantities.sweep import SOME, Of, quantity_of


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

    def quantity(self, arm: str) -> Quantity:
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
