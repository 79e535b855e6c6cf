"""Plots: the parts of a figure. A plot is a spec with a method that draws it from tables.

Each plot is one file in ssm/figures/plots, named after its kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from ssm.base.discovery import Registry
from ssm.base.errors import nearest
from ssm.claims.estimate import UndecidableError
from ssm.claims.families import Member, member_name
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import SeedQuantity
from ssm.claims.reader import Reader, SeriesReader
from ssm.claims.series import PlannedFigure
from ssm.claims.sweep import OfQuantity
from ssm.figures.data import Curve, chosen_arms, panels
from ssm.figures.rows import Row
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Distinct, Name, PluginSpec

PLOTS: Registry[type[Plot]] = Registry("ssm.figures.plots")


class Plot(Reader, PluginSpec):
    """A part of a figure: one or more rows of panels."""

    registry: ClassVar[Registry[Any]] = PLOTS

    @abstractmethod
    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """The rows, before they are drawn.

        Args:
            tables: folder of the tables.
            styles: arm -> style.

        Raises:
            TableError: a table is missing or broken.
        """

    def panels(self) -> tuple[str, ...]:
        """The panels (models) that the plot names."""
        return ()

    def legend(self) -> Sequence[str] | None:
        """The arms and families that only the legend names; None: all arms."""
        return None

    def in_legend(self, task: PlannedFigure) -> list[str]:
        """The measured arms that only the legend names."""
        names = set(self.own_measurement_names)
        measured = {series.arm for series in task.series if not names or names & series.tables.keys()}
        return [arm for arm in chosen_arms(task, self.legend()) if arm in measured]


def require_arms(field: str, names: Iterable[str], arms: Collection[str], families: Collection[str]) -> None:
    """Check that these names are arms or families of arms.

    Raises:
        ValueError: a name is unknown. The message has the nearest valid name.
    """
    for name in names:
        if name not in arms and name not in families:
            raise ValueError(f"{field}: unknown arm '{name}'; {nearest(name, [*arms, *families])}")


class Titled(Plot):
    """Draws a panel for each model, or several."""

    title: str | None = None  # title of the panels; with several models, it follows the name of the model

    def title_of(self, task: PlannedFigure, model: str) -> str:
        """The title of a model's panels."""
        names = [task.title_of(model)] if self.title is None or len(panels(task)) > 1 else []
        return ", ".join([*names, *([] if self.title is None else [self.title])])


class SeriesPlot(SeriesReader, Plot):
    """Draws measurements of the figure's series."""


class ChosenArms(Plot):
    """Draws some arms of the figure."""

    # arms or families to draw; none: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        require_arms("arms", self.arms or (), arms, families)

    def legend(self) -> Sequence[str] | None:
        return self.arms

    def looks(self, task: PlannedFigure, styles: dict[str, ArmStyle]) -> dict[str, Look]:
        """How each drawn arm looks.

        A plot of one family among several names its arms by their values alone, with a style for each value. So the
        same value looks the same in the plots of all families.
        """
        every = {series.arm: series for series in task.series}
        wanted = chosen_arms(task, self.arms)
        families = {every[arm].family for arm in wanted}
        family = families.pop() if len(families) == 1 else None
        if self.arms is None or family is None or len({series.family for series in every.values()}) < 2:
            return {arm: Look(arm, every[arm].label, styles[arm]) for arm in wanted}
        axes = [series.axes for series in every.values() if series.axes.keys() == every[wanted[0]].axes.keys()]
        values = {member_name("", own): ("", own) for own in axes}
        by_value = arm_styles(list(values), values)
        found = {}
        for arm in wanted:
            name, member = member_name("", every[arm].axes), task.member(arm)
            label = member.label_without(family=False) if member is not None else every[arm].label
            found[arm] = Look(name, label, by_value[name])
        return found


@dataclass(frozen=True)
class Look:
    """How an arm is drawn."""

    name: str  # arms of several plots with the same name are the same in the legend
    label: str
    style: ArmStyle

    def of(self, curve: Curve) -> Curve:
        """The curve of the arm with this look."""
        return replace(curve, arm=self.name, label=self.label)


@dataclass(frozen=True)
class Numbers:
    """The numbers of one arm."""

    seeds: np.ndarray  # (seeds,); empty if a run diverged or the numbers cannot be computed
    logarithmic: bool  # average logarithms

    def summary(self) -> tuple[float, float, float]:
        """Mean, smallest and largest number over the seeds; NaN without numbers."""
        if not len(self.seeds):
            return np.nan, np.nan, np.nan
        with np.errstate(divide="ignore"):
            mean = np.exp(np.log(self.seeds).mean()) if self.logarithmic else self.seeds.mean()
        return float(mean), float(self.seeds.min()), float(self.seeds.max())


class OfArms(OfQuantity, Plot):
    """Draws a quantity of arms, seed by seed."""

    @property
    def score(self) -> str:
        """The name of the quantity, for plots without a label."""
        return score_of(self.of)

    def numbers(self, arm: str, task: PlannedFigure, tables: Path, panel: str) -> Numbers | None:
        """The numbers of an arm; None if the arm does not exist at this scale, or was not measured.

        Raises:
            TableError: a planned table is missing or broken.
        """
        quantity = self.quantity(arm)
        found = by_seed(quantity, arm, task, tables, panel)
        return None if found is None else Numbers(np.array(list(found.values())), quantity.logarithmic)


def score_of(content: Mapping[str, Any]) -> str:
    """The name of a quantity: its column, or its kind."""
    return str(content.get("column", content["kind"]))


def by_seed(quantity: SeedQuantity, arm: str, task: PlannedFigure, tables: Path, panel: str) -> dict[int, float] | None:
    """Seed -> number of an arm; empty if a run diverged or a number cannot be computed.

    None: the arm does not exist at this scale, or was not measured. Raises as `OfArms.numbers`.
    """
    own = [series for series in task.series if (series.panel, series.arm) == (panel, arm)]
    if not own or not all(set(quantity.own_measurement_names) <= set(series.tables) for series in own):
        return None
    try:
        numbers = quantity.numbers(PanelTables(task, panel, tables))
    except UndecidableError:
        return {}
    return numbers if np.isfinite(list(numbers.values())).all() else {}


class Variants(OfArms):
    """Draws a quantity of arms in several variants, such as the same share at several lengths."""

    # name of a variant -> keys of the quantity that differ from `of`; those of `where` are added; none: only `of`
    each: Annotated[dict[str, dict[str, Any]], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name, part in self.variants().items():
            try:
                part.quantity()
            except ValueError as error:
                raise ValueError(f"each.{name}.{error}") from None
        return self

    def variants(self) -> dict[str, OfArms]:
        """Name -> a plot with the variant as its only quantity."""
        found: dict[str, OfArms] = {}
        for name, keys in (self.each or {"": {}}).items():
            where = {**self.of.get("where", {}), **keys.get("where", {})}
            content = {**self.of, **keys, **({"where": where} if where else {})}
            found[name] = self.model_copy(update={"of": content, "each": None})
        return found

    def nested_readers(self) -> dict[str, Reader]:
        variants = self.variants() if self.each is not None else {}
        return super().nested_readers() | {f"each.{name}": one.quantity() for name, one in variants.items()}
