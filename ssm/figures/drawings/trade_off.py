"""What arms reach against what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ssm.figures.colors import INK
from ssm.figures.data import chosen_arms, panels
from ssm.figures.numbers import Numbers, numbers_of_arm
from ssm.figures.panel import Row, columns_for
from ssm.figures.style import ArmStyle, number
from ssm.specs.drawings.trade_off import TradeOff
from ssm.specs.figure import FigureTask

HEIGHT, SIDE_BY_SIDE = 3.3, 2.6  # inches

Point = tuple[str, ArmStyle, Numbers, Numbers]  # label, look, numbers along x and along y


def trade_off(drawing: TradeOff, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model: a point is an arm's two means, its lines the ranges over seeds."""
    labels = {series.arm: series.label for series in task.series}
    found: dict[str, list[Point]] = {}
    for model in panels(task):
        for arm in chosen_arms(task, drawing.arms):
            x, y = (numbers_of_arm(one, arm, task, tables, model) for one in drawing.quantities(arm))
            if x is not None and y is not None:
                found.setdefault(model, []).append((labels[arm], styles[arm], x, y))
    columns = columns_for(len(found))
    painters = [partial(_paint, drawing, model, own) for model, own in found.items()]
    seeds = max((len(y.seeds) for own in found.values() for *_, y in own), default=0)
    note = f"Point: mean over {seeds} seeds. Its lines: their range" if seeds > 1 else "One seed"
    height = HEIGHT if columns == 1 else SIDE_BY_SIDE
    return [Row(height, painters[at : at + columns], columns, note) for at in range(0, len(painters), columns)]


def _paint(drawing: TradeOff, model: str, own: Sequence[Point], axes: Axes, columns: int) -> None:
    largest = 0.0
    for label, style, along, up in own:
        (x, x_low, x_high), (y, y_low, y_high) = along.summary(), up.summary()
        there = np.isfinite([x, y]).all()
        name = label if there else f"{label} (diverged, or no number)"
        axes.plot(x, y, label=name, **style.keywords() | {"linestyle": "none", "markersize": 7.0, "zorder": 3})
        if there:
            axes.hlines(y, x_low, x_high, color=style.color, linewidth=1.2, zorder=2)
            axes.vlines(x, y_low, y_high, color=style.color, linewidth=1.2, zorder=2)
            largest = max(largest, x_high)
    if drawing.level is not None:
        axes.axhline(drawing.level, color=INK, linewidth=0.9, linestyle=(0.0, (4.0, 2.0)), zorder=1.5)
    axes.set_xlim(0.0, 1.06 * largest or 1.0)  # what costs nothing stands at the left edge
    bins = {1: 8, 2: 5}.get(columns, 4)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: number(tick)))
    axes.set_title(model)
    axes.set_xlabel(drawing.cost_label or str(drawing.cost.get("column", drawing.cost["kind"])).replace("_", " "))
    axes.set_ylabel(drawing.label or drawing.score.replace("_", " "))
