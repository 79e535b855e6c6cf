"""The class of each curve (strong, weak or no length extension, or not decided; ls Definition 2.1) and its excess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ssm.base.lazy import polars as pl
from ssm.base.lazy import ticker
from ssm.claims.series import PlannedFigure
from ssm.claims.table_numbers import position_curve
from ssm.figures.colors import GRID, INK
from ssm.figures.data import panels, read_planned
from ssm.figures.panel import LEVEL, end_of_bin
from ssm.figures.plot import SeriesPlot
from ssm.figures.rows import Row, columns_for, in_rows
from ssm.figures.style import CLASS_NAMES, CLASSES, SMALL, ArmStyle
from ssm.specs.base import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 0.27  # inches: the lowest legible height of a line of excesses
STEEPEST = 4.0  # nats: curves that rise further leave the panel


@dataclass(frozen=True)
class Classed:
    """The curve of one run with its class."""

    model: str
    arm: str
    kind: str  # key of CLASSES
    # nats: largest loss after t* minus the loss at t* (lg Definition 3.2). None: not measured beyond T. NaN: diverged
    excess: float | None
    error: float | None
    x: np.ndarray  # (bins,) position / T
    rise: np.ndarray  # (bins,) loss minus the mean loss from T/2 to T, nats

    @property
    def name(self) -> str:
        """Model and arm."""
        return f"{self.model}: {self.arm}"


class ClassChart(SeriesPlot):
    """Loss by length for each curve, with its class (ls Definition 2.1) and its excess (lg Definition 3.2)."""

    kind: Literal["length_classes"] = "length_classes"
    reads: ClassVar[tuple[str, ...]] = ("length_class", "position_loss")
    position_loss: Name | None = None  # name of the measurement of the loss by position; none: position_loss

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """Above: the rise of each loss beyond T by model, in the color of its class. Below: the excess of each run."""
        curves = classed_curves(task, tables, self)
        if not curves:
            return []
        names = list(dict.fromkeys(curve.name for curve in curves))
        note = "A curve and a symbol per run. Class: ls Definition 2.1. Excess: lg Definition 3.2"
        if any(curve.excess is not None and not np.isfinite(curve.excess) for curve in curves):
            note += ". Arrow: diverged"
        if any(curve.excess is None for curve in curves):
            note += ". No symbol: not measured beyond T"
        models = list(dict.fromkeys(curve.model for curve in curves))
        columns = columns_for(len(models))
        upper = [partial(_draw_curves, curves, model, place % columns == 0) for place, model in enumerate(models)]
        lines = len(names)
        lower = [lambda axes, _: _draw_excess(axes, curves, names)]
        return [*in_rows(upper, columns, 2.6, note, 1.6), Row(0.9 + 0.36 * lines, lower, 1, "", 0.9 + LEAST * lines)]


def classed_curves(task: PlannedFigure, tables: Path, plot: ClassChart) -> list[Classed]:
    """All series that have a class. A run that several figures share counts once."""
    classes, losses = plot.measurement_name("length_class"), plot.measurement_name("position_loss")
    seen, curves = set(), []
    for panel in panels(task):
        for series in task.series:
            table = series.tables.get(classes)
            if series.panel != panel or table is None or table in seen:
                continue
            seen.add(table)
            row = read_planned(task, tables, table, "length_class").sort("length").row(-1, named=True)
            x, rise = np.array([]), np.array([])
            if losses in series.tables:
                loss = position_curve(read_planned(task, tables, series.tables[losses], "position_loss"))
                x, rise = _rise(loss, series.context)
            excess = row["excess"]
            # A diverged run does not extend.
            kind = "not decided" if excess is None else row["class"] if np.isfinite(excess) else "none"
            curves.append(Classed(task.title_of(panel), series.label, kind, excess, row["excess_error"], x, rise))
    return curves


def _rise(loss: pl.DataFrame, context: int) -> tuple[np.ndarray, np.ndarray]:
    """(position / T at the middle of each bin from T/2 on, loss minus the mean loss from T/2 to T)."""
    late = loss.filter(pl.col("position_from") >= context // 2)
    start, end, values = (late[name].to_numpy() for name in ("position_from", "position_to", "loss"))
    inside = end <= context
    at_context = np.average(values[inside], weights=(end - start)[inside]) if inside.any() else values[0]
    return (start + end) / (2 * context), values - at_context


def _draw_curves(every: Sequence[Classed], model: str, first: bool, axes: Axes, columns: int) -> None:
    """Draw the curves of one model. All panels have the same axes; the first of a row has the labels of the y axis."""
    for kind, style in CLASSES.items():
        for curve in every:
            if (curve.kind, curve.model) == (kind, model):
                rise = np.where(np.isfinite(curve.rise), curve.rise, np.nan)
                axes.plot(curve.x, rise, color=style.color, linewidth=1.1, alpha=0.85, label="_" + curve.name)
        count = sum(curve.kind == kind for curve in every)
        if count:
            axes.plot([], [], **style.keywords(), label=f"{CLASS_NAMES[kind]} ({count})")
    axes.axhline(0.0, **LEVEL)
    axes.axvline(1.0, color=INK, linewidth=1.2, linestyle=(0.0, (1.5, 1.5)))
    axes.set_xscale("log", base=2)
    longest = end_of_bin(max((float(curve.x.max()) for curve in every if curve.x.size), default=2.0))
    most = {1: 10, 2: 6}.get(columns, 4)
    every_power = range(-1, int(np.ceil(np.log2(longest))) + 1)
    step = -(-len(every_power) // most)
    powers = [power for power in every_power if power % step == 0]
    axes.set_xlim(0.5, longest)
    axes.xaxis.set_major_locator(ticker.FixedLocator([2.0**power for power in powers]))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter([_multiple(power) for power in powers]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_title(model)
    axes.set_xlabel("position / T")
    axes.set_ylabel("loss minus that of T/2 to T (nats)" if first else "")
    axes.tick_params(labelleft=first)
    finite = np.concatenate([curve.rise[np.isfinite(curve.rise)] for curve in every] or [np.array([])])
    if finite.size:
        low, high = float(finite.min()), min(float(finite.max()), STEEPEST)
        axes.set_ylim(low - 0.05 * (high - low) - 1e-3, high + 0.05 * (high - low) + 1e-3)


def _draw_excess(axes: Axes, curves: Sequence[Classed], names: Sequence[str]) -> None:
    for curve in curves:
        line = names.index(curve.name)
        style = CLASSES[curve.kind]
        if curve.excess is None:
            continue
        if np.isfinite(curve.excess):
            error = curve.error if curve.error is not None and np.isfinite(curve.error) else 0.0
            look = style.keywords() | {"linestyle": "none"}
            axes.errorbar(curve.excess, line, xerr=error, elinewidth=1.2, **look)
        else:
            beside = axes.get_yaxis_transform()  # x as a fraction of the axes
            axes.plot(1.02, line, color=style.color, marker=">", transform=beside, clip_on=False)
    lines = np.arange(len(names))
    axes.vlines(
        np.zeros(len(names)), lines - 0.12, lines + 0.28, color=INK, linewidth=1.2
    )  # zero, without crossing the names
    axes.set_xscale("symlog", linthresh=0.1)
    axes.xaxis.set_major_locator(ticker.FixedLocator([-1, -0.1, 0, 0.1, 1, 10]))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter(["−1", "−0.1", "0", "0.1", "1", "10"]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    for line, name in enumerate(names):  # above its line: long names next to the axes would leave no space for them
        axes.annotate(name, (0, line), (2, 3), ("axes fraction", "data"), "offset points", fontsize=SMALL, va="bottom")
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.tick_params(left=False)
    axes.set_ylim(len(names) - 0.5, -0.8)
    axes.grid(True, axis="y", color=GRID)
    axes.set_xlabel("excess (nats per token; 0 or less: it length-generalizes)")


def _multiple(power: int) -> str:
    if power == 0:
        return "T"
    return f"T/{2**-power}" if power < 0 else f"{2**power}T"
