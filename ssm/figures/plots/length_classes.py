"""The class of each curve (strong, weak or no length extension, or not decided; ls Definition 2.1) and its excess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ssm.base.curves import position_curve
from ssm.base.lazy import polars as pl
from ssm.base.lazy import ticker
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import GRID, INK
from ssm.figures.data import panels, read_planned
from ssm.figures.panel import Row, end_of_bin
from ssm.figures.plot import SeriesPlot
from ssm.figures.style import CLASS_NAMES, CLASSES, SMALL, ArmStyle
from ssm.specs.base import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEEPEST = 4.0  # nats: curves that rise further leave the panel


@dataclass(frozen=True)
class Classed:
    """The curve of one run with its class."""

    name: str  # model and arm
    kind: str  # key of CLASSES
    excess: float  # nats: largest loss after t* minus the loss at t* (lg Definition 3.2)
    error: float
    x: np.ndarray  # (bins,) position / T
    rise: np.ndarray  # (bins,) loss minus the loss just before T, nats


class ClassChart(SeriesPlot):
    """Loss by length for each curve, with its class (ls Definition 2.1) and its excess (lg Definition 3.2)."""

    kind: Literal["length_classes"] = "length_classes"
    reads: ClassVar[tuple[str, ...]] = ("length_class", "position_loss")
    position_loss: Name | None = None  # name of the measurement of the loss by position; none: position_loss

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """Above: the rise of each loss beyond T, in the color of its class. Below: the excess of each run."""
        curves = classed_curves(task, tables, self)
        if not curves:
            return []
        names = list(dict.fromkeys(curve.name for curve in curves))
        note = "A curve and a symbol per run. Class: ls Definition 2.1. Excess: lg Definition 3.2"
        if any(not np.isfinite(curve.excess) for curve in curves):
            note += ". Arrow: diverged"
        return [
            Row(3.2, [lambda axes, _: _draw_curves(axes, curves)], 1, note),
            Row(0.9 + 0.36 * len(names), [lambda axes, _: _draw_excess(axes, curves, names)], 1),
        ]


def classed_curves(task: PlannedFigure, tables: Path, plot: ClassChart) -> list[Classed]:
    """All series that have a class. A run that several figures share counts once."""
    classes, losses = plot.name_of("length_class"), plot.name_of("position_loss")
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
            name = f"{task.title_of(panel)}: {series.label}"
            excess, error = (np.nan if row[key] is None else row[key] for key in ("excess", "excess_error"))
            kind = row["class"] if np.isfinite(excess) else "none"  # a diverged run does not extend
            curves.append(Classed(name, kind, excess, error, x, rise))
    return curves


def _rise(loss: pl.DataFrame, context: int) -> tuple[np.ndarray, np.ndarray]:
    """(position / T at the middle of each bin from T/8 on, loss minus the loss of the last bin within T)."""
    at_context = loss.filter(pl.col("position_to") <= context)["loss"][-1]
    late = loss.filter(pl.col("position_from") >= context // 8)
    x = (late["position_from"] + late["position_to"]).to_numpy() / (2 * context)
    return x, late["loss"].to_numpy() - at_context


def _draw_curves(axes: Axes, curves: Sequence[Classed]) -> None:
    for kind, style in CLASSES.items():
        own = [curve for curve in curves if curve.kind == kind]
        for curve in own:
            rise = np.where(np.isfinite(curve.rise), curve.rise, np.nan)
            axes.plot(curve.x, rise, color=style.color, linewidth=1.3, alpha=0.85, label="_" + curve.name)
        if own:
            axes.plot([], [], **style.keywords(), label=f"{CLASS_NAMES[kind]} ({len(own)})")
    axes.axhline(0.0, color=INK, linewidth=0.9, linestyle=(0.0, (4.0, 2.0)))
    axes.axvline(1.0, color=INK, linewidth=1.2, linestyle=(0.0, (1.5, 1.5)))
    axes.set_xscale("log", base=2)
    longest = end_of_bin(max((float(curve.x.max()) for curve in curves if curve.x.size), default=2.0))
    powers = list(range(-3, int(np.ceil(np.log2(longest))) + 1))
    powers = [power for power in powers if len(powers) < 10 or power % 2 == 0]
    axes.set_xlim(0.125, longest)
    axes.xaxis.set_major_locator(ticker.FixedLocator([2.0**power for power in powers]))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter([_multiple(power) for power in powers]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("position (multiples of the training length T)")
    axes.set_ylabel("loss minus loss at T\n(nats per token)")
    finite = np.concatenate([curve.rise[np.isfinite(curve.rise)] for curve in curves] or [np.array([])])
    if finite.size:
        low, high = float(finite.min()), min(float(finite.max()), STEEPEST)
        axes.set_ylim(low - 0.05 * (high - low) - 1e-3, high + 0.05 * (high - low) + 1e-3)


def _draw_excess(axes: Axes, curves: Sequence[Classed], names: Sequence[str]) -> None:
    for curve in curves:
        line = names.index(curve.name)
        style = CLASSES[curve.kind]
        if np.isfinite(curve.excess):
            error = curve.error if np.isfinite(curve.error) else 0.0
            axes.errorbar(
                curve.excess, line, xerr=error, color=style.color, marker=style.marker, linestyle="none", elinewidth=1.2
            )
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
