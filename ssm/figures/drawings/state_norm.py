"""Norm of the whole state against position (lg figure 4)."""

from __future__ import annotations

from pathlib import Path

from ssm.figures.data import panels, state_norm_curves
from ssm.figures.panel import CurvePanel, Row, columns_for, context_marks, note_on, rows_of, token_range
from ssm.figures.style import ArmStyle
from ssm.specs.drawings.state_norm import StateNormCurves
from ssm.specs.figure import FigureTask


def state_norm(drawing: StateNormCurves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, each with its own y axis: norms of different models do not compare."""
    found = {model: state_norm_curves(task, tables, model, *drawing.names) for model in panels(task)}
    plots = [
        CurvePanel(
            curves,
            styles,
            model,
            "position (tokens)",
            "norm of the whole state",
            token_range(curves),
            through=curves[0].context,
            marks=context_marks(curves, styles),
        )
        for model, curves in found.items()
        if curves
    ]
    note = note_on([curve for curves in found.values() for curve in curves])
    return rows_of(plots, 3.0 if columns_for(len(plots)) == 1 else 2.5, note, same_y=False)
