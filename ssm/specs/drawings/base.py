"""What the specs of all drawings share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from ssm.base.errors import nearest
from ssm.specs.quantities.base import Quantity
from ssm.specs.quantities.sweep import Of, quantity_of
from ssm.specs.reader import Reader, SeriesReader


class Drawing(Reader):
    """A part of a figure's picture: one row of panels, or several."""

    def panels(self) -> tuple[str, ...]:
        """The panels (named models) that it names."""
        return ()


def insist_on_arms(field: str, names: Iterable[str], arms: Collection[str], families: Collection[str]) -> None:
    """Whether these are arms, or families of arms.

    Raises:
        ValueError: one is neither, with the nearest valid name.
    """
    for name in names:
        if name not in arms and name not in families:
            raise ValueError(f"{field}: unknown arm '{name}'; {nearest(name, [*arms, *families])}")


class SeriesDrawing(SeriesReader, Drawing):
    """Draws measurements of the figure's series."""


class OfArms(Drawing):
    """Draws a quantity of arms, seed by seed."""

    reads: ClassVar[tuple[str, ...]] = ()  # any
    of: Of  # without its arm

    def quantity(self, arm: str) -> Quantity:
        """What is drawn of an arm."""
        return quantity_of(self.of, arm)

    @property
    def score(self) -> str:
        """What is drawn, where a figure file gives it no other name."""
        return str(self.of.get("column", self.of["kind"]))

    @property
    def names(self) -> tuple[str, ...]:
        return self.quantity("arm").names

    def named(self) -> dict[str, tuple[str, str | None]]:
        return {f"of.{field}": one for field, one in self.quantity("arm").named().items()}
