"""A score against the number in which arms differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ssm.figures.data import Curve, panels
from ssm.figures.numbers import numbers_of_arm
from ssm.figures.panel import CurvePanel, Row, columns_for, note_on, rows_of, x_range
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.drawings.sweep import SweepCurves
from ssm.specs.figure import FigureTask

Families = Mapping[str, tuple[tuple[float, str], ...]]  # name -> its numbers and arms


def sweep(drawing: SweepCurves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, with a common y axis; every point is marked."""
    found = {model: sweep_curves(drawing, task, tables, model) for model in panels(task)}
    looks = arm_styles(list(dict.fromkeys(curve.arm for own in found.values() for curve in own)))
    plots = [
        CurvePanel(
            own,
            looks,
            model,
            drawing.x_label or (drawing.over or "number").replace("_", " "),
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


def families(drawing: SweepCurves, task: FigureTask, panel: str) -> Families:
    """The families of a panel, in the order in which they are planned."""
    if drawing.families is not None:
        return {name: tuple(zip(drawing.at or (), arms, strict=True)) for name, arms in drawing.families.items()}
    found: dict[str, dict[tuple[float, str], None]] = {}
    for series in task.series:
        axes = dict(series.axes)
        number = axes.pop(str(drawing.over), None)
        there = all(axes.get(axis) == value for axis, value in drawing.where.items())
        if series.panel == panel and there and isinstance(number, int | float):
            rest = (f"{axis.replace('_', ' ')} {value}" for axis, value in axes.items() if axis not in drawing.where)
            found.setdefault(", ".join(rest) or "all", {})[float(number), series.arm] = None
    return {name: tuple(sorted(members)) for name, members in found.items()}


def sweep_curves(drawing: SweepCurves, task: FigureTask, tables: Path, panel: str) -> list[Curve]:
    """A curve a family: the mean over seeds with their range; of logarithms, where the quantity is one."""
    curves = []
    for name, members in families(drawing, task, panel).items():
        points = []
        for x, arm in members:
            values = numbers_of_arm(drawing.quantity(arm), arm, task, tables, panel)
            if values is not None:
                points.append((x, *values.summary(), len(values.seeds)))
        if points:
            x_y_low_high_seeds = np.array(points, dtype=float).T
            label = name.replace("_", " ")
            curves.append(Curve(name, label, 1, int(x_y_low_high_seeds[4].max()), *x_y_low_high_seeds[:4]))
    return curves
