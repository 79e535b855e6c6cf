"""Any column against any other, an arm a curve."""

from __future__ import annotations

from pathlib import Path

from ssm.figures.data import Curve, column_curves, panels
from ssm.figures.panel import (
    CurvePanel,
    Row,
    columns_for,
    context_marks,
    end_of_bin,
    note_on,
    rows_of,
    token_range,
    x_range,
)
from ssm.figures.style import ArmStyle
from ssm.specs.drawings.curves import Curves
from ssm.specs.figure import FigureTask


def curves(drawing: Curves, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model; the axes show all that was measured, of the first model's kind of table."""
    wanted = drawing.against or dict.fromkeys(panels(task))
    found = {
        model: column_curves(task, tables, model, drawing, drawing.x, drawing.exponential, other)
        for model, other in wanted.items()
    }
    plots = [_panel(drawing, own, styles, _title(model, wanted[model])) for model, own in found.items() if own]
    note = note_on([curve for own in found.values() for curve in own])
    return rows_of(plots, 3.3 if columns_for(len(plots)) == 1 else 2.6, note)


def _title(model: str, other: str | None) -> str:
    return model if other is None else f"{model} against {other}"


def _panel(drawing: Curves, found: list[Curve], styles: dict[str, ArmStyle], title: str) -> CurvePanel:
    logarithmic = drawing.tokens or drawing.log_x
    low, high = x_range(found, logarithmic)
    if drawing.tokens:
        low, high = max(low, token_range(found)[0]), end_of_bin(high)
    return CurvePanel(
        found,
        styles,
        title,
        drawing.x_label or drawing.x.replace("_", " ") + (" (tokens)" if drawing.tokens else ""),
        drawing.y_label or drawing.column.replace("_", " "),
        (low, high),
        through=found[0].context,
        tokens=drawing.tokens,
        log_x=logarithmic,
        log_y=drawing.log_y,
        level=drawing.level,
        marks=context_marks(found, styles) if drawing.tokens else (),
    )
