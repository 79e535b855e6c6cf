"""Lines of text."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.errors import TableError, nearest
from ssm.base.lazy import polars as pl
from ssm.claims.series import PlannedFigure
from ssm.figures.data import own_table, read_any_planned
from ssm.figures.plot import SeriesPlot
from ssm.figures.rows import Row
from ssm.figures.style import ArmStyle
from ssm.specs.base import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = 80  # characters of a line
LETTERS = 8.0  # points
LINE = 1.45 * LETTERS / 72  # inches
HANG = "  "  # indent of continuation lines


class Text(SeriesPlot):
    """Lines of text in a monospaced font: given lines, or a column of a measurement's table."""

    kind: Literal["text"] = "text"
    reads: ClassVar[tuple[str, ...]] = ()  # any measurement
    of_figure: ClassVar[bool] = True
    lines: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None  # the text
    # column of the table of `measurement`, from the first series that has it or from the figure itself
    column: Name | None = None
    rows: PositiveInt = 40  # maximal number of rows of that table

    @model_validator(mode="after")
    def _lines_or_table(self) -> Self:
        if (self.lines is None) == (self.column is None) or (self.column is None) != (self.measurement is None):
            raise ValueError("give either 'lines', or 'measurement' and 'column'")
        return self

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return () if self.measurement is None else (self.measurement,)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """One panel. Long lines continue on the next line, indented."""
        found = self.lines if self.lines is not None else _column(self, task, tables)
        lines = [part for piece in found for line in piece.splitlines() or [""] for part in _parts(line)]
        return [Row(LINE * (len(lines) + 1), [lambda axes, _: _draw(axes, lines)], 1)] if lines else []


def _column(plot: Text, task: PlannedFigure, tables: Path) -> list[str]:
    name, column = str(plot.measurement), str(plot.column)
    series = next((one for one in task.series if name in one.tables), None)
    if series is not None:
        table: pl.DataFrame | None = read_any_planned(task, tables, series.tables[name])[0]
    else:
        table = own_table(task, tables, name)
    if table is None:
        return []
    if column not in table.columns:
        raise TableError(f"{task.target}: {name} has no column '{column}'; {nearest(column, table.columns)}")
    return [str(value) for value in table[column].drop_nulls().head(plot.rows).to_list()]


def _parts(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, WIDEST, subsequent_indent=indent + HANG, drop_whitespace=True) or [""]


def _draw(axes: Axes, lines: list[str]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(lines), 0)
    for place, line in enumerate(lines):
        text = axes.text(0, place + 0.5, line, va="center", fontsize=LETTERS, family="monospace", parse_math=False)
        text.set_in_layout(False)  # other panels keep their width
