"""A quantity by the number in which arms differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ssm.claims.families import (
    Member,
    axis_name,
    axis_values,
    has_values,
    is_number,
    member_name,
    place_words,
    require_axes,
)
from ssm.claims.series import PlannedFigure
from ssm.claims.sweep import Arms, Numbers
from ssm.figures.data import Curve, chosen_arms, curves_of_models, panels
from ssm.figures.panel import CurvePanel, note_on, rows_of, x_range
from ssm.figures.plot import OfArms, Titled, require_arms
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ARMS, GREY, HUES, ArmStyle, arm_styles, unordered
from ssm.specs.base import Distinct, Name, Setting


@dataclass(frozen=True)
class Family:
    """The arms of one curve."""

    name: str  # determines the style
    label: str
    members: tuple[tuple[float, str], ...]  # (number, arm), ascending
    place: tuple[str, dict[str, Setting]] | None = None  # on a grid: the family, and its values on the other axes


class SweepCurves(Titled, OfArms):
    """The quantity `of` by the number in which arms differ: a panel for each model, a curve for each family.

    On a grid, the number is the axis `over`. Each curve then has fixed values on all other axes; `where` selects some
    of them. Without a grid, `families` lists the arms of each curve, and `at` their numbers. With `together`, one panel
    has the curves of all models.
    """

    kind: Literal["sweep"] = "sweep"
    over: Name | None = None  # axis of the grid along which the arms differ
    where: dict[Name, Setting] = {}  # only members with these values on other axes
    families: Annotated[dict[Name, Arms], Field(min_length=1)] | None = None  # name of a curve -> its arms
    at: Numbers | None = None  # the numbers of the arms of each family
    together: bool = False  # true: all models in one panel
    log_x: bool = False  # true: logarithmic horizontal axis
    log_y: bool = False  # true: logarithmic vertical axis
    level: float | None = None  # a reference line, such as chance
    reference: Annotated[tuple[Name, ...], Field(strict=False), Distinct] = ()  # arms drawn as horizontal lines
    x_label: str | None = None  # label of the horizontal axis; none: the name of the axis
    y_label: str | None = None  # label of the vertical axis; none: the name of the quantity

    @model_validator(mode="after")
    def _families_or_axis(self) -> Self:
        if (self.over is None) == (self.families is None):
            raise ValueError("give either 'families' with their numbers 'at', or 'over', an axis of the figure's grid")
        if (self.at is None) == (self.over is None) or (self.where and self.over is None):
            raise ValueError("'at' needs 'families', and 'where' needs 'over'")
        if self.together and self.reference:
            raise ValueError("'reference' is a line in the panel of a model; leave out 'together' or 'reference'")
        for name, arms in (self.families or {}).items():
            if len(arms) != len(self.at or ()):
                raise ValueError(f"families.{name}: {len(arms)} arms at {len(self.at or ())} numbers ('at')")
        return self

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        require_arms("reference", self.reference, arms, ())
        for name, members in (self.families or {}).items():
            require_arms(f"families.{name}", members, arms, ())
        values = axis_values(families.values())
        if values or not families:
            over = [("over", self.over)] if self.over else []
            require_axes([*over, *(("where", axis) for axis in self.where)], values)
        if not all(map(is_number, values.get(str(self.over), []))):
            raise ValueError(f"over: not all values of '{self.over}' are numbers; use the plot 'bars'")

    def legend(self) -> Sequence[str]:
        return self.reference

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, or one for all, with a shared y axis and a marker at each point."""
        own_families = {model: families(self, task, model) for model in panels(task)}
        by_model = {model: sweep_curves(self, own, task, tables, model) for model, own in own_families.items()}
        every_family = [one for own in own_families.values() for one in own]
        places = {one.name: one.place for one in every_family if one.place is not None and one.place[1]}
        found = [
            (self.title_of(task, model), own, _references(self, task, tables, model, own))
            for model, own in by_model.items()
            if own
        ]
        names = list(dict.fromkeys(one.name for one in every_family))
        if self.together:
            curves = curves_of_models(task, by_model)
            found = [(self.title or "", curves, [])] if curves else []
            known = {style.color for arm, style in styles.items() if arm in ARMS}
            hues = sorted((GREY, *reversed(HUES)), key=known.__contains__)  # other arms have the first of the free hues
            looks = unordered([curve.arm for curve in curves], hues)
        else:  # families of the file have its order; their ramp differs from the hues of families of a grid
            looks = arm_styles(names, places, ordered=self.families is not None)
        used = {look.color for look in looks.values()}
        references = chosen_arms(task, self.reference)
        if any(styles[arm].color in used for arm in references):  # its style in the figure would look like a curve
            looks = arm_styles([*names, *references], places, ordered=False)
        looks = styles | looks
        plots = [
            CurvePanel(
                [*own, *lines],
                looks,
                title,
                self.x_label or axis_name(self.over or "number"),
                self.y_label or self.score.replace("_", " "),
                x_range(own, self.log_x),
                tokens=False,
                log_x=self.log_x,
                log_y=self.log_y,
                level=self.level,
                ticks=tuple(sorted({float(x) for curve in own for x in curve.x})),
                seeds="dots",
            )
            for title, own, lines in found
        ]
        every = [curve for own in by_model.values() for curve in own]
        missing = "" if all(one.finite().all() for one in every) else "Missing point: no number"
        note = ". ".join(filter(None, [note_on(every, "dots", marked=False), missing]))
        return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def families(plot: SweepCurves, task: PlannedFigure, panel: str) -> list[Family]:
    """The families of a panel, in the order of the plan."""
    if plot.families is not None:
        named = plot.families.items()
        return [
            Family(name, name.replace("_", " "), tuple(sorted(zip(plot.at or (), arms, strict=True))))
            for name, arms in named
        ]
    found: dict[tuple[str, str], tuple[dict[str, Setting], dict[tuple[float, str], None]]] = {}
    for series in task.series:
        axes = dict(series.axes)
        number = axes.pop(str(plot.over), None)
        if series.panel == panel and number is not None and is_number(number) and has_values(axes, plot.where):
            key = (series.family or "", member_name("", axes))
            found.setdefault(key, (axes, {}))[1][float(number), series.arm] = None
    several = len({family for family, _ in found}) > 1
    return [
        Family(
            name=f"{family}{rest if axes else ''}",
            label=_label(plot, task, next(iter(members))[1], axes, several),
            members=tuple(sorted(members)),
            place=(family, axes),
        )
        for (family, rest), (axes, members) in found.items()
    ]


def _label(plot: SweepCurves, task: PlannedFigure, arm: str, axes: dict[str, Setting], several: bool) -> str:
    """The label of a curve: its values on other axes, and its family if there are several."""
    member = task.member(arm)
    if member is not None:
        return member.label_without(str(plot.over), *plot.where, family=several)
    words = [place_words(axis, value) for axis, value in axes.items() if axis not in plot.where]
    return ", ".join(words) or "all"


def sweep_curves(plot: SweepCurves, own: list[Family], task: PlannedFigure, tables: Path, panel: str) -> list[Curve]:
    """A curve for each family: mean over seeds (of logarithms, if the quantity is logarithmic), with their range."""
    curves = []
    for family in own:
        points, dots = [], []
        for x, arm in family.members:
            values = plot.numbers(arm, task, tables, panel)
            if values is not None:
                points.append((x, *values.summary(), len(values.seeds)))
                dots.append((np.full(len(values.seeds), x), values.seeds))
        if points:
            x_y_low_high_seeds = np.array(points, dtype=float).T
            x, y, low, high, seeds = x_y_low_high_seeds
            curves.append(Curve(family.name, family.label, 1, int(seeds.max()), x, y, low, high, tuple(dots)))
    return curves


def _references(plot: SweepCurves, task: PlannedFigure, tables: Path, panel: str, beside: list[Curve]) -> list[Curve]:
    """Horizontal lines across the range of the curves."""
    x = np.array(x_range(beside, plot.log_x))
    curves = []
    for arm in chosen_arms(task, plot.reference):
        values = plot.numbers(arm, task, tables, panel)
        if values is not None:
            label = next(series.label for series in task.series if series.arm == arm)
            y, low, high = (np.full(2, value) for value in values.summary())
            curves.append(Curve(arm, label, 1, len(values.seeds), x, y, low, high))
    return curves
