"""A column against the step of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ssm.figures.data import Curve, Line, column_lines, over_seeds, panels
from ssm.figures.panel import CurvePanel, Row, columns_for, note_on, rows_of, x_range
from ssm.figures.style import ArmStyle
from ssm.specs.drawings.learning_curves import LearningCurves
from ssm.specs.figure import FigureTask


def learning_curves(drawing: LearningCurves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, with a common y axis."""
    found = {model: _curves(drawing, task, tables, model) for model in panels(task)}
    plots = [
        CurvePanel(
            own,
            styles,
            model,
            drawing.x.replace("_", " "),
            drawing.y_label or drawing.column.replace("_", " "),
            x_range(own, logarithmic=False),
            tokens=False,
            log_x=False,
            log_y=drawing.log_y,
            level=drawing.level,
        )
        for model, own in found.items()
        if own
    ]
    note = note_on([curve for own in found.values() for curve in own])
    return rows_of(plots, 3.0 if columns_for(len(plots)) == 1 else 2.5, note)


def _curves(drawing: LearningCurves, task: FigureTask, tables: Path, panel: str) -> list[Curve]:
    lines = column_lines(task, tables, panel, drawing, drawing.x)
    return over_seeds([(series, thinned(line, drawing.points)) for series, line in lines])


def thinned(line: Line, points: int) -> Line:
    """At most so many points, each the mean over as many neighbours (the last over those that are left)."""
    size = -(-len(line.x) // points)
    starts = np.arange(0, len(line.x), size)
    counts = np.diff([*starts, len(line.x)])
    return Line(*(np.add.reduceat(values, starts) / counts for values in (line.x, line.y, line.error)))
