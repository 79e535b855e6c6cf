"""Lines of text as they are."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ssm.base.errors import TableError, nearest
from ssm.base.lazy import polars as pl
from ssm.base.tables import schema_of
from ssm.claims.panel import planned
from ssm.figures.data import own_table, read_planned
from ssm.figures.panel import Row
from ssm.figures.style import SMALL, ArmStyle
from ssm.specs.drawings.text import Text
from ssm.specs.figure import FigureTask
from ssm.specs.measurements import SCHEMAS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = 80  # characters of a line
LINE = 1.3 * SMALL / 72  # inches
HANG = "  "  # before what a line is too short for


def text(drawing: Text, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """One panel; a line that is too long goes on below, a little to the right."""
    found = drawing.lines if drawing.lines is not None else _column(drawing, task, tables)
    lines = [part for piece in found for line in piece.splitlines() or [""] for part in _parts(line)]
    return [Row(LINE * (len(lines) + 1), [lambda axes, _: _draw(axes, lines)], 1)] if lines else []


def _column(drawing: Text, task: FigureTask, tables: Path) -> list[str]:
    name, column = str(drawing.measurement), str(drawing.column)
    series = next((one for one in task.series if name in one.tables), None)
    if series is not None:
        path = planned(task, tables, series.tables[name])
        table: pl.DataFrame | None = read_planned(task, tables, path.stem, schema_of(path, SCHEMAS).name)
    else:
        table = own_table(task, tables, name)
    if table is None:
        return []
    if column not in table.columns:
        raise TableError(f"{task.figure.target}: {name} has no column '{column}'; {nearest(column, table.columns)}")
    return [str(value) for value in table[column].drop_nulls().head(drawing.rows).to_list()]


def _parts(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, WIDEST, subsequent_indent=indent + HANG, drop_whitespace=True) or [""]


def _draw(axes: Axes, lines: list[str]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(lines), 0)
    for place, line in enumerate(lines):
        axes.text(0, place + 0.5, line, va="center", fontsize=SMALL, family="monospace", parse_math=False)
