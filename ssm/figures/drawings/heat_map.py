"""A column of a table over two of its keys, or over a key and an axis of the grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize

from ssm.base.columns import by_sample, chosen, means
from ssm.base.tables import Schema
from ssm.figures.data import any_loaded, panels
from ssm.figures.panel import Row, columns_for
from ssm.figures.style import SMALL, ArmStyle, log_ticks, number, tokens
from ssm.specs.base import Setting
from ssm.specs.drawings.heat_map import HeatMap
from ssm.specs.families import axis_name, is_number, value_text
from ssm.specs.figure import FigureTask, Series

MAP = matplotlib.colormaps["viridis"]
DARK, LIGHT = "#101418", "#ffffff"  # on cells, whose colours are the same by day and by night
NUMBERS = 100  # cells of a panel in which numbers can be read

Cells = dict[tuple[Setting, Setting], float]  # (x, y) -> a mean over seeds


@dataclass(frozen=True)
class HeatPanel:
    """One map. Calling it paints it."""

    cells: Cells
    title: str
    x_label: str
    y_label: str
    norm: Normalize
    column_label: str
    first: bool = True  # of its row

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`: y rises."""
        across, up = (_sorted({key[place] for key in self.cells}) for place in (0, 1))
        values = np.array([[self.cells.get((x, y), math.nan) for x in across] for y in up])  # (Y, X)
        mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=MAP, norm=self.norm, edgecolors="face")
        axes.grid(visible=False)
        axes.set_title(self.title)
        for place, held in enumerate((across, up)):
            axis, most = (axes.xaxis, {1: 12, 2: 6}.get(columns, 5)) if place == 0 else (axes.yaxis, 12)
            step = math.ceil(len(held) / most)
            axis.set_ticks([i + 0.5 for i in range(0, len(held), step)], [_text(value) for value in held[::step]])
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label if self.first else "")
        if values.size <= NUMBERS:
            self._write(axes, values)
        else:
            self._explain(axes, mesh)
        for i, j in np.argwhere(~np.isfinite(values)):
            if (across[j], up[i]) in self.cells:
                axes.text(j + 0.5, i + 0.5, "×", ha="center", va="center")  # measured, and no number

    def _explain(self, axes: Axes, mesh: QuadMesh) -> None:
        """The colours' numbers, beside the map."""
        bar = axes.figure.colorbar(mesh, ax=axes, label=self.column_label)
        if isinstance(self.norm, LogNorm):
            ticks = log_ticks(float(self.norm.vmin or 0), float(self.norm.vmax or 1), 5)
            bar.set_ticks(ticks, labels=[number(tick) for tick in ticks])
            bar.ax.minorticks_off()

    def _write(self, axes: Axes, values: np.ndarray) -> None:
        """The number of every cell, to two digits."""
        share = np.nanmin(values) >= 0 and np.nanmax(values) <= 1
        for i, j in np.argwhere(np.isfinite(values)):
            light = float(np.dot(MAP(self.norm(values[i, j]))[:3], (0.2126, 0.7152, 0.0722))) > 0.45
            color = DARK if light else LIGHT
            text = f"{values[i, j]:.2f}".lstrip("0") if share else f"{values[i, j]:.2g}"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=color, fontsize=SMALL)


def heat_map(drawing: HeatMap, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel for every model and arm, members along a drawn axis in one; colours mean the same in all."""
    found: dict[tuple[str, str], list[tuple[Series, Cells]]] = {}
    for panel in panels(task):
        for series, table, schema in any_loaded(task, tables, panel, drawing):
            own = _cells(drawing, series, table, schema)
            if own:
                found.setdefault((panel, _called(drawing, task, series, schema)), []).append((series, own))
    maps = {place: _over_seeds(drawing, own) for place, own in found.items()}
    several = len({panel for panel, _ in maps}) > 1
    norm = _norm(drawing, [value for cells in maps.values() for value in cells.values() if math.isfinite(value)])
    column = drawing.column_label or drawing.column.replace("_", " ")
    labels = drawing.x_label or axis_name(drawing.x), drawing.y_label or axis_name(drawing.y)
    plots = [
        HeatPanel(cells, f"{label} ({panel})" if several else label, labels[0], labels[1], norm, column)
        for (panel, label), cells in maps.items()
    ]
    columns, rows = columns_for(len(plots)), []
    for start in range(0, len(plots), columns):
        row = plots[start : start + columns]
        height = 1.0 + 0.3 * max(len({y for _, y in plot.cells}) for plot in row)
        painted = [
            HeatPanel(p.cells, p.title, p.x_label, p.y_label, p.norm, p.column_label, first=place == 0)
            for place, p in enumerate(row)
        ]
        seeds = max((len({series.seed for series, _ in own}) for own in found.values()), default=1)
        note = f"Cell: {column}" + (f", mean over {seeds} seeds" if seeds > 1 else "")
        rows.append(Row(min(4.2, max(2.2, height)), painted, columns, note))
    return rows


def _cells(drawing: HeatMap, series: Series, table: pl.DataFrame, schema: Schema) -> Cells:
    """One seed's cells of one arm; none, where it has not what is drawn."""
    keys = [name for name in (drawing.x, drawing.y) if _is_key(name, schema)]
    if any(name not in keys and name not in series.axes for name in (drawing.x, drawing.y)):
        return {}
    rows = chosen(table, schema, drawing.where)
    if not keys:
        return {(series.axes[drawing.x], series.axes[drawing.y]): float(by_sample(rows, schema, drawing.column).mean())}
    frame = means(rows, schema, keys, drawing.column)
    cells: Cells = {}
    for row in frame.iter_rows(named=True):
        place = tuple(row[name] if name in keys else series.axes[name] for name in (drawing.x, drawing.y))
        cells[place[0], place[1]] = math.nan if row["value"] is None else row["value"]
    return cells


def _is_key(name: str, schema: Schema) -> bool:
    return name in schema.columns or f"{name}_from" in schema.columns


def _called(drawing: HeatMap, task: FigureTask, series: Series, schema: Schema) -> str:
    """The panel of an arm: its label, without the axes that are drawn."""
    drawn = [name for name in (drawing.x, drawing.y) if not _is_key(name, schema)]
    entry = task.figure.arms.get(series.arm)
    return entry.member.label_without(*drawn) if drawn and entry and entry.member else series.label


def _over_seeds(drawing: HeatMap, own: list[tuple[Series, Cells]]) -> Cells:
    """Means over the seeds of each cell's arm, of the cells that all of them have; NaN where a seed is not finite."""
    values: dict[Any, dict[str, list[float]]] = {}
    seeds: dict[str, int] = {}
    for series, cells in own:
        seeds[series.arm] = seeds.get(series.arm, 0) + 1
        for place, value in cells.items():
            values.setdefault(place, {}).setdefault(series.arm, []).append(value)
    finish = math.exp if drawing.exponential else float
    found: Cells = {}
    for place, by_arm in values.items():
        for arm, held in by_arm.items():
            if len(held) == seeds[arm]:
                mean = float(np.mean(held))
                found[place] = finish(mean) if math.isfinite(mean) else math.nan
    return found


def _norm(drawing: HeatMap, values: list[float]) -> Normalize:
    low, high = drawing.limits or (min(values, default=0.0), max(values, default=1.0))
    if drawing.log_color:
        low = min((value for value in values if value > 0), default=1.0) if drawing.limits is None else low
        return LogNorm(low, max(high, low * 1.001))
    return Normalize(low, high if high > low else low + 1.0)


def _sorted(values: set[Setting]) -> list[Setting]:
    """Numbers ascending, words in their order."""
    if all(map(is_number, values)):
        return sorted(values, key=float)
    return sorted(values, key=value_text)


def _text(value: Setting) -> str:
    if not is_number(value):
        return value_text(value)
    return tokens(float(value)) if float(value).is_integer() else number(float(value))
