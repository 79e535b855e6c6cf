"""A score against the number in which arms differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssm.figures.data import Curve, chosen_arms, panels
from ssm.figures.numbers import numbers_of_arm
from ssm.figures.panel import CurvePanel, Row, columns_for, note_on, rows_of, x_range
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.base import Setting
from ssm.specs.drawings.sweep import SweepCurves
from ssm.specs.families import axis_name, is_number, member_name, place_words, stands_at
from ssm.specs.figure import FigureTask


@dataclass(frozen=True)
class Family:
    """The arms of one curve."""

    name: str  # what its style is chosen by
    label: str
    members: tuple[tuple[float, str], ...]  # number and arm, ascending
    place: tuple[str, dict[str, Setting]] | None = None  # of a grid: the family, and the values of its other axes


def sweep(drawing: SweepCurves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, with a common y axis; every point is marked."""
    own_families = {model: families(drawing, task, model) for model in panels(task)}
    found = {model: sweep_curves(drawing, own, task, tables, model) for model, own in own_families.items()}
    every_family = [one for own in own_families.values() for one in own]
    places = {one.name: one.place for one in every_family if one.place is not None and one.place[1]}
    names = list(dict.fromkeys(one.name for one in every_family))
    looks = arm_styles(names, places)
    used = {look.color for look in looks.values()}
    references = chosen_arms(task, drawing.reference)
    if any(styles[arm].color in used for arm in references):  # as an arm of the figure it looks like a curve
        looks = arm_styles([*names, *references], places)
    looks = styles | looks
    plots = [
        CurvePanel(
            [*own, *_references(drawing, task, tables, model, own)],
            looks,
            model,
            drawing.x_label or axis_name(drawing.over or "number"),
            drawing.y_label or drawing.score.replace("_", " "),
            x_range(own, drawing.log_x),
            tokens=False,
            log_x=drawing.log_x,
            log_y=drawing.log_y,
            level=drawing.level,
            ticks=tuple(sorted({float(x) for curve in own for x in curve.x})),
        )
        for model, own in found.items()
        if own
    ]
    every = [curve for own in found.values() for curve in own]
    note = note_on(every) + ("" if all(one.finite().all() for one in every) else ". No point: no such number")
    return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def families(drawing: SweepCurves, task: FigureTask, panel: str) -> list[Family]:
    """The families of a panel, in the order in which they are planned."""
    if drawing.families is not None:
        named = drawing.families.items()
        return [
            Family(name, name.replace("_", " "), tuple(zip(drawing.at or (), arms, strict=True)))
            for name, arms in named
        ]
    found: dict[tuple[str, str], tuple[dict[str, Setting], dict[tuple[float, str], None]]] = {}
    for series in task.series:
        axes = dict(series.axes)
        number = axes.pop(str(drawing.over), None)
        if series.panel == panel and number is not None and is_number(number) and stands_at(axes, drawing.where):
            key = (series.family or "", member_name("", axes))
            found.setdefault(key, (axes, {}))[1][float(number), series.arm] = None
    several = len({family for family, _ in found}) > 1
    return [
        Family(
            name=f"{family}{rest if axes else ''}",
            label=_label(drawing, task, next(iter(members))[1], axes, several),
            members=tuple(sorted(members)),
            place=(family, axes),
        )
        for (family, rest), (axes, members) in found.items()
    ]


def _label(drawing: SweepCurves, task: FigureTask, arm: str, axes: dict[str, Setting], several: bool) -> str:
    """What tells a curve from the others: its family where there are several, and the values of other axes."""
    entry = task.figure.arms.get(arm)
    words = [place_words(axis, value) for axis, value in axes.items() if axis not in drawing.where]
    if entry is not None and entry.member is not None and (several or not words):
        words = [entry.member.label, *words]
    return ", ".join(words) or "all"


def sweep_curves(drawing: SweepCurves, own: list[Family], task: FigureTask, tables: Path, panel: str) -> list[Curve]:
    """A curve a family: the mean over seeds with their range; of logarithms, where the quantity is one."""
    curves = []
    for family in own:
        points = []
        for x, arm in family.members:
            values = numbers_of_arm(drawing.quantity(arm), arm, task, tables, panel)
            if values is not None:
                points.append((x, *values.summary(), len(values.seeds)))
        if points:
            x_y_low_high_seeds = np.array(points, dtype=float).T
            seeds = int(x_y_low_high_seeds[4].max())
            curves.append(Curve(family.name, family.label, 1, seeds, *x_y_low_high_seeds[:4]))
    return curves


def _references(drawing: SweepCurves, task: FigureTask, tables: Path, panel: str, beside: list[Curve]) -> list[Curve]:
    """Level lines, from the first number of the curves to their last."""
    x = np.array(x_range(beside, drawing.log_x))
    curves = []
    for arm in chosen_arms(task, drawing.reference):
        values = numbers_of_arm(drawing.quantity(arm), arm, task, tables, panel)
        if values is not None:
            label = next(series.label for series in task.series if series.arm == arm)
            lines = (np.full(2, value) for value in values.summary())
            curves.append(Curve(arm, label, 1, len(values.seeds), x, *lines))
    return curves
