"""What the specs of all drawings share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from ssm.base.errors import nearest
from ssm.specs.base import Distinct
from ssm.specs.families import Member
from ssm.specs.quantities.base import Quantity
from ssm.specs.quantities.sweep import SOME, Of, quantity_of
from ssm.specs.reader import Reader, SeriesReader


class Drawing(Reader):
    """A part of a figure's picture: one row of panels, or several."""


class SeriesDrawing(SeriesReader, Drawing):
    """Draws measurements of the figure's series."""


class QuantityDrawing(Drawing):
    """Draws a quantity of every arm, `of` (written without its arm): the number that claims are judged by."""

    reads: ClassVar[tuple[str, ...]] = ()  # any
    of: Of
    families: Annotated[tuple[str, ...], Field(strict=False), Distinct] | None = None  # None: all arms
    y_label: str | None = None

    def quantity(self, arm: str = SOME) -> Quantity:
        """What is read of an arm."""
        return quantity_of(self.of, arm)

    @property
    def names(self) -> tuple[str, ...]:
        return self.quantity().names

    def named(self) -> dict[str, tuple[str, str | None]]:
        return {f"of.{field}": name for field, name in self.quantity().named().items()}

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        for family in self.families or ():
            if family not in families:
                raise ValueError(f"families: no arm '{family}' with a grid; {nearest(family, families)}")
