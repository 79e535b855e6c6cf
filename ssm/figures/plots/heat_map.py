"""A column by two others, as colored cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ssm.base.columns import by_sample, is_key, means, rows_where, split
from ssm.base.counting import short
from ssm.base.lazy import colors, matplotlib, patches
from ssm.base.lazy import polars as pl
from ssm.base.schema import Schema
from ssm.claims.families import axis_name, is_number, value_text
from ssm.claims.panel_tables import OWN, with_own_series
from ssm.claims.reader import ColumnReader
from ssm.claims.series import PlannedFigure, Series
from ssm.figures.colors import GRID, INK
from ssm.figures.data import any_loaded, chosen_arms, panels, split_by
from ssm.figures.plot import ChosenArms, SeriesPlot, Titled
from ssm.figures.rows import LETTER, Row, in_rows, wrapped_title
from ssm.figures.style import CLASS_NAMES, CLASSES, SMALL, TITLE, WIDTH, ArmStyle, tokens
from ssm.specs.base import Name, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 4  # panels per row
MOST_ROWS = 10  # of cells with a label
TINY = 8.5  # points: the smallest legible letters in cells
BESIDE, BETWEEN = 0.9, 0.25  # inches: space left of the cells, and between panels
DARK, LIGHT = "#101418", "#fbfbfb"  # text on cells: the same in light and dark mode
Cells = dict[tuple[Setting, Setting], float]  # (x, y) -> value


@dataclass(frozen=True)
class Map:
    """The cells of one arm."""

    title: str
    x: list[Setting]
    y: list[Setting]
    values: np.ndarray  # (y, x); NaN: not measured, or the run diverged
    seeds: int
    classes: dict[tuple[int, int], str]  # (row, column) -> key of CLASSES
    headed: bool  # whether the first line of the title is a heading


class HeatMap(ChosenArms, Titled, ColumnReader, SeriesPlot):
    """A column by two others: a panel for each arm, with means over seeds and everything else that was measured.

    `x` and `y` may also be axes of a grid. The members along these axes then share one panel. With `split`, each value
    of that key has its own panel. A measurement of the figure itself is drawn as if it belonged to one arm.
    """

    kind: Literal["heat_map"] = "heat_map"
    of_figure: ClassVar[bool] = True
    x: Name  # a column of the table, or an axis of the grid
    y: Name  # the same for the vertical axis
    split: Name | None = None  # another key: draw a panel for each value
    limits: Annotated[tuple[float, float], Field(strict=False)] | None = None  # of the colors; none: from the values
    cells: bool = True  # true: write the number into each cell
    percent: bool = False  # true: the numbers are shares; show them in percent (without the sign)
    exponential: bool = False  # true: show the exponential of the mean, such as the perplexity of a loss in nats
    log_color: bool = False  # true: logarithmic color scale
    classes: bool = False  # true: mark each cell with its class; needs a length_class table (ls Definition 2.1)
    x_label: str | None = None  # label of the horizontal axis; none: the name of `x`
    y_label: str | None = None  # label of the vertical axis; none: the name of `y`

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.x == self.y:
            raise ValueError(f"x and y are both '{self.x}'")
        if self.log_color and self.limits is not None and self.limits[0] <= 0:
            raise ValueError("log_color: limits must be above 0")
        return self

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model and arm, all with the same color scale."""
        task = with_own_series(task, tables, self.measurement)
        maps = [
            replace(one, title="\n".join(word for word in (one.title, name) if word))
            for model in panels(task)
            for name, part in split_by(self.split, self, task, tables, model).items()
            for one in heat_maps(part, task, tables, model)
        ]
        if not maps:
            return []
        values = np.concatenate([one.values.ravel() for one in maps])
        finite = values[np.isfinite(values) & (values > 0)] if self.log_color else values[np.isfinite(values)]
        limits = self.limits or ((float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0))
        columns = _columns(self, maps)
        room = _room(maps, columns)
        lines = max(len(_lines(one, room)) for one in maps) - 1
        cells, around = max(len(one.y) for one in maps), 1.1 + 0.2 * lines
        height, least = (
            around + (0.27 + 0.15 * self.classes) * cells,
            around - 0.2 + (0.2 + 0.12 * self.classes) * cells,
        )
        seeds = {one.seeds for one in maps}
        notes = [f"Means over {max(seeds)} seeds"] if max(seeds) > 1 else []
        if not self.cells or any(_letters(one, self, room) is None for one in maps):
            unit = "%" if self.percent else ""
            notes.append(f"Dark to light: {_text(limits[0], self)} to {_text(limits[1], self)}{unit}")
        elif self.percent:
            notes.append("Numbers are percentages")
        if finite.size < values.size:
            notes.append("Empty: no number")
        if self.classes:
            notes.append("Symbol: class up to the length of the cell (ls Definition 2.1); not decided if seeds differ")
        bare = [_alike(maps) and place % columns > 0 for place in range(len(maps))]
        plotters = [partial(_draw_on, self, *each, limits, room) for each in zip(maps, bare, strict=True)]
        return in_rows(plotters, columns, height, ". ".join(notes), least)


def _columns(plot: HeatMap, maps: Sequence[Map]) -> int:
    """Number of panels per row: as many as leave space for the numbers in cells and the words of titles."""
    for columns in range(MOST, 1, -1):
        if columns > ceil(len(maps) / ceil(len(maps) / columns)):
            continue  # fewer columns need no more rows
        room = _room(maps, columns)
        cells = all(_letters(one, plot, room) is not None for one in maps)
        lines = (line for one in maps for line in _lines(one, room)[one.headed :])
        if cells and all(TITLE * len(line) <= room for line in lines):
            return columns
    return 1


def _alike(maps: Sequence[Map]) -> bool:
    """Whether all panels can share one vertical axis."""
    return all(one.y == maps[0].y for one in maps)


def _room(maps: Sequence[Map], columns: int) -> float:
    """Width of the cells of a panel, inches."""
    beside = BESIDE if _alike(maps) else BESIDE * columns
    return (WIDTH - beside - BETWEEN * (columns - 1)) / columns


def _lines(one: Map, room: float) -> list[str]:
    """The lines of a title. A heading is one line, which may extend over the panels beside it."""
    lines = one.title.split("\n")
    rest = "\n".join(lines[one.headed :])
    return lines[: one.headed] + (wrapped_title(rest, room).split("\n") if rest else [])


def _width(one: Map, plot: HeatMap, size: float) -> float:
    """Width of a cell with the longest text in letters of `size` points, inches."""
    texts = [_text(value, plot) for value in one.values[np.isfinite(one.values)]] if plot.cells else []
    return LETTER * size / SMALL * (0.5 + max(map(len, texts), default=0))


def _letters(one: Map, plot: HeatMap, room: float) -> float | None:
    """The largest size of letters, in points, at which the numbers fit into cells; None if none does."""
    return next((size for size in (SMALL, TINY) if _width(one, plot, size) * len(one.x) <= room), None)


def heat_maps(plot: HeatMap, task: PlannedFigure, tables: Path, panel: str) -> list[Map]:
    """The maps of a panel: one for each arm, or one for all members along a drawn axis.

    Values are means over seeds. If one seed has no number, the cell has none.
    """
    several = len(panels(task)) > 1
    wanted = chosen_arms(task, plot.arms)
    families = {series.family or series.arm for series in task.series if series.arm in wanted}
    found: dict[str, list[tuple[Series, Cells]]] = {}
    kinds: dict[tuple[str, tuple[Setting, Setting]], set[str]] = {}
    for series, table, schema in any_loaded(task, tables, panel, plot):
        if series.arm in wanted:
            drawn = [name for name in (plot.x, plot.y) if not is_key(schema, name) and name in series.axes]
            rows = rows_where(table, schema, plot.where)
            cells = _cells(plot, series, rows, schema)
            title = _title(task, series, drawn, len(families) > 1)
            found.setdefault(title, []).append((series, cells))
            if plot.classes:
                for place, kind in _classes(plot, series, rows, schema):
                    kinds.setdefault((title, place), set()).add(kind)
    maps = []
    for title, loaded in sorted(found.items(), key=lambda pair: min(wanted.index(one.arm) for one, _ in pair[1])):
        by_place: dict[tuple[Setting, Setting], list[float]] = {}
        for place, value in (cell for _, cells in loaded for cell in cells.items()):
            by_place.setdefault(place, []).append(value)
        x, y = (_ordered([place[number] for place in by_place]) for number in (0, 1))
        values = np.full((len(y), len(x)), np.nan)
        for (across, up), of_seeds in by_place.items():
            mean = float(np.mean(of_seeds))
            values[y.index(up), x.index(across)] = np.exp(mean) if plot.exponential else mean
        seeds = len({series.seed for series, _ in loaded})
        classes = {
            (y.index(up), x.index(across)): own.pop() if len(own) == 1 else "not decided"
            for (of, (across, up)), own in kinds.items()
            if of == title
        }
        over = [plot.title_of(task, panel)] if several or plot.title is not None else []
        maps.append(Map("\n".join([*over, title] if title else over), x, y, values, seeds, classes, bool(over)))
    return maps


def _cells(plot: HeatMap, series: Series, rows: pl.DataFrame, schema: Schema) -> Cells:
    """(x, y) -> mean of one seed. Each of x and y is a column of the table, or the value of the arm on an axis.

    Raises:
        TableError: x or y is neither of them.
    """
    names = (plot.x, plot.y)
    columns = [name for name in names if is_key(schema, name) or name not in series.axes]
    if not columns:
        return {(series.axes[plot.x], series.axes[plot.y]): float(by_sample(rows, schema, plot.column).mean())}
    cells: Cells = {}
    for row in means(rows, schema, columns, plot.column).iter_rows(named=True):
        x, y = (row[name] if name in columns else series.axes[name] for name in names)
        cells[x, y] = row["value"]
    return cells


def _classes(
    plot: HeatMap, series: Series, rows: pl.DataFrame, schema: Schema
) -> Iterator[tuple[tuple[Setting, Setting], str]]:
    """((x, y), class) of each cell of a seed that has a class.

    Raises:
        TableError: the table has no classes.
    """
    for row in pl.concat([rows.clear(), *split(rows, schema, "class")]).iter_rows(named=True):
        x, y = (row[name] if name in row else series.axes[name] for name in (plot.x, plot.y))
        yield (x, y), row["class"]


def _ordered(values: Sequence[Setting]) -> list[Setting]:
    """The distinct values: numbers ascending, other values in their order."""
    every = list(dict.fromkeys(values))
    return sorted(every, key=float) if all(map(is_number, every)) else every


def _title(task: PlannedFigure, series: Series, drawn: Sequence[str], several: bool) -> str:
    """The label of an arm without the drawn axes, and without its family if there is only one."""
    if series.arm == OWN:
        return ""
    member = task.member(series.arm)
    return member.label_without(*drawn, family=several) if drawn and member else series.label


def _draw_on(
    plot: HeatMap,
    one: Map,
    bare: bool,
    limits: tuple[float, float],
    room: float,
    axes: Axes,
    columns: int,
) -> None:
    """Draw the cells of one panel. A `bare` panel has no labels on its vertical axis."""
    axes.grid(False)
    scale = colors.LogNorm(*limits) if plot.log_color else colors.Normalize(*limits)
    letters = _letters(one, plot, room)
    for (row, column), value in np.ndenumerate(one.values):
        cell = partial(patches.Rectangle, (column + 0.03, row + 0.05), 0.94, 0.9)
        if not np.isfinite(value):
            axes.add_patch(cell(fill=False, edgecolor=GRID, linewidth=0.8))
            continue
        share = min(max(float(scale(value)), 0.0), 1.0) if limits[0] < limits[1] else 0.0
        color = matplotlib.colormaps["viridis"](0.12 + 0.78 * share)
        axes.add_patch(cell(facecolor=color, linewidth=0))
        if plot.cells and letters is not None:
            place = (column + 0.5, row + (0.3 if plot.classes else 0.5))
            axes.text(*place, _text(value, plot), color=_ink(share), ha="center", va="center", fontsize=letters)
        if (row, column) in one.classes:
            marker = CLASSES[one.classes[row, column]].marker
            axes.plot(column + 0.5, row + 0.7, color=_ink(share), marker=marker, linestyle="none", markersize=5)
    for kind in sorted({*one.classes.values()}, key=list(CLASSES).index):
        axes.plot([], [], color=INK, marker=CLASSES[kind].marker, linestyle="none", label=CLASS_NAMES[kind])
    axes.set_xlim(0, len(one.x))
    axes.set_ylim(0, len(one.y))
    axes.set_xticks(*_ticks(one.x, step_across([_name(value) for value in one.x], room, letters or SMALL)))
    axes.set_yticks(*_ticks(one.y, ceil(len(one.y) / MOST_ROWS)))
    axes.tick_params(length=0, labelsize=letters or SMALL, labelleft=not bare)
    axes.spines[:].set_visible(False)
    axes.set_title(one.title)
    axes.set_xlabel(plot.x_label or axis_name(plot.x))
    axes.set_ylabel("" if bare else plot.y_label or axis_name(plot.y))


def _ink(share: float) -> str:
    """The text color that is legible on a cell at this place of the color scale."""
    return DARK if share > 0.55 else LIGHT


def _text(value: float, plot: HeatMap) -> str:
    return f"{100 * value:.0f}" if plot.percent else short(value) if abs(value) >= 100 else f"{value:.2g}"


def _name(value: Setting) -> str:
    return tokens(float(value)) if is_number(value) else value_text(value)


def step_across(names: Sequence[str], room: float, size: float) -> int:
    """The smallest step at which no two neighbors of `names[::step]` touch, in letters of `size` points."""
    cell, letter = room / len(names), LETTER * size / SMALL
    for step in range(1, len(names)):
        if all(letter * (0.5 + (len(a) + len(b)) / 2) <= step * cell for a, b in pairwise(names[::step])):
            return step
    return len(names)


def _ticks(values: Sequence[Setting], step: int) -> tuple[np.ndarray, list[str]]:
    """Tick positions and labels of each `step`th cell: the middles of cells."""
    return np.arange(0, len(values), step) + 0.5, [_name(value) for value in values[::step]]
