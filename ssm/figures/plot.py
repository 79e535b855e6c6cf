"""Plots: what a figure is stacked from. A plot is a spec, and says itself how it is drawn from tables.

Each is one file in ssm/figures/plots, which is called like its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, ClassVar

from ssm.base.discovery import Registry
from ssm.base.errors import nearest
from ssm.claims.quantity import SeedQuantity
from ssm.claims.reader import Reader, SeriesReader
from ssm.claims.series import PlannedFigure
from ssm.claims.sweep import SOME, Of, quantity_of
from ssm.figures.panel import Row
from ssm.figures.style import ArmStyle


class Plot(Reader, ABC):
    """A part of a figure: one row of panels, or several."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        PLOTS.add_spec(cls)

    @abstractmethod
    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """The rows, not yet drawn.

        Args:
            tables: the folder of tables.
            styles: of every arm.

        Raises:
            TableError: a table is missing or broken.
        """

    def panels(self) -> tuple[str, ...]:
        """The panels (named models) that it names."""
        return ()


PLOTS: Registry[type[Plot]] = Registry("ssm.figures.plots")


def insist_on_arms(field: str, names: Iterable[str], arms: Collection[str], families: Collection[str]) -> None:
    """Whether these are arms, or families of arms.

    Raises:
        ValueError: one is neither, with the nearest valid name.
    """
    for name in names:
        if name not in arms and name not in families:
            raise ValueError(f"{field}: unknown arm '{name}'; {nearest(name, [*arms, *families])}")


class SeriesPlot(SeriesReader, Plot):
    """Draws measurements of the figure's series."""


class OfArms(Plot):
    """Draws a quantity of arms, seed by seed."""

    reads: ClassVar[tuple[str, ...]] = ()  # any
    of: Of  # without its arm

    def quantity(self, arm: str) -> SeedQuantity:
        """What is drawn of an arm."""
        return quantity_of(self.of, arm)

    @property
    def score(self) -> str:
        """What is drawn, where a figure file gives it no other name."""
        return str(self.of.get("column", self.of["kind"]))

    @property
    def names(self) -> tuple[str, ...]:
        return self.quantity(SOME).names

    def named(self) -> dict[str, tuple[str, str | None]]:
        return {f"of.{field}": one for field, one in self.quantity(SOME).named().items()}
