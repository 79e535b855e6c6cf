"""A quantity against the numbers of a grid's axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ssm.figures.data import Curve, panels
from ssm.figures.drawings.curves import x_range
from ssm.figures.numbers import Numbers, numbers
from ssm.figures.panel import CurvePanel, Row, columns_for, note_on, rows_of
from ssm.figures.style import ArmStyle, arm_styles
from ssm.specs.drawings.sweep_curves import SweepCurves
from ssm.specs.families import axis_name, is_number, member_name
from ssm.specs.figure import FigureTask


def sweep_curves(drawing: SweepCurves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model; a curve's style follows the other axes of its family."""
    found = {panel: numbers(drawing, task, tables, panel) for panel in panels(task)}
    own: dict[str, ArmStyle] = {name: styles[name] for name in drawing.reference if name in styles}
    grouped = {panel: _grouped(drawing, all_numbers) for panel, all_numbers in found.items()}
    places = {name: place for groups in grouped.values() for name, (place, _) in groups.items()}
    own |= arm_styles(list(places), {name: place for name, place in places.items() if place[1]})
    plots = []
    for panel, groups in grouped.items():
        curves = [_curve(drawing, task, name, members) for name, (_, members) in groups.items()]
        if not curves:
            continue
        limits = x_range(curves, drawing.log_x)
        flat = [one for one in found[panel] if one.series.arm in drawing.reference]
        plots.append(
            CurvePanel(
                [*curves, *(_level(one, limits) for one in flat)],
                own,
                panel,
                drawing.x_label or axis_name(drawing.over),
                drawing.y_label or str(drawing.of["kind"]).replace("_", " "),
                limits,
                tokens=False,
                log_x=drawing.log_x,
                log_y=drawing.log_y,
                level=drawing.level,
                ticks=sorted({x for curve in curves for x in curve.x.tolist()}),
            )
        )
    note = note_on([curve for plot in plots for curve in plot.curves])
    return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def _grouped(
    drawing: SweepCurves, found: list[Numbers]
) -> dict[str, tuple[tuple[str, dict[str, object]], list[Numbers]]]:
    """Name of a curve -> its family and its values on the other axes, and its members."""
    groups: dict[str, tuple[tuple[str, dict[str, object]], list[Numbers]]] = {}
    for one in found:
        family, axes = one.series.family, dict(one.series.axes)
        number = axes.pop(drawing.over, None)
        if family is not None and number is not None and is_number(number):
            name = member_name(family, axes) if axes else family
            groups.setdefault(name, ((family, dict(axes)), []))[1].append(one)
    return groups


def _curve(drawing: SweepCurves, task: FigureTask, name: str, members: list[Numbers]) -> Curve:
    """The curve of a group: a mean over seeds at every number, their range its band."""
    members = sorted(members, key=lambda one: float(one.series.axes[drawing.over]))
    entry = task.figure.arms.get(members[0].series.arm)
    label = entry.member.label_without(drawing.over) if entry and entry.member else name
    x = np.array([float(one.series.axes[drawing.over]) for one in members])
    y = np.array([one.mean for one in members])
    several = [len(one.values) > 1 for one in members]
    low = np.where(several, [one.values.min() for one in members], np.nan)
    high = np.where(several, [one.values.max() for one in members], np.nan)
    seeds = min(len(one.values) for one in members)
    return Curve(name, label, members[0].series.context, seeds, x, y, low, high)


def _level(one: Numbers, limits: tuple[float, float]) -> Curve:
    """An arm without the axis: a level line."""
    series, x = one.series, np.array(limits)
    low, high = (one.values.min(), one.values.max()) if len(one.values) > 1 else (np.nan, np.nan)
    lines = [np.full(2, value) for value in (one.mean, low, high)]
    return Curve(series.arm, series.label, series.context, len(one.values), x, *lines)
