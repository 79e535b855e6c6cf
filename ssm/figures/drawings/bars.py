"""A quantity of every arm as a bar, its seeds as dots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ssm.figures.colors import INK
from ssm.figures.data import chosen_arms, panels
from ssm.figures.numbers import Numbers, numbers_of_arm
from ssm.figures.panel import Row, columns_for
from ssm.figures.style import SMALL, ArmStyle
from ssm.specs.drawings.bars import Bars
from ssm.specs.figure import FigureTask

Bar = tuple[str, ArmStyle, Numbers]  # label, look, numbers


def bars(drawing: Bars, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model: bars lie below one another, each with its name above it, on one axis."""
    labels = {series.arm: series.label for series in task.series}
    wanted = chosen_arms(task, drawing.arms)
    found: dict[str, list[Bar]] = {}
    for model in panels(task):
        numbers = {arm: numbers_of_arm(drawing.quantity(arm), arm, task, tables, model) for arm in wanted}
        own = [(labels[arm], styles[arm], one) for arm, one in numbers.items() if one is not None]
        if own:
            found[model] = own
    if not found:
        return []
    columns = columns_for(len(found))
    limits = _limits(drawing, list(found.values()))
    painters = [partial(_paint, drawing, model, own, limits) for model, own in found.items()]
    height = 0.9 + 0.42 * max(map(len, found.values()))
    seeds = max(len(one.seeds) for own in found.values() for *_, one in own)
    note = f"Bar: mean over {seeds} seeds. Dot: a seed" if seeds > 1 else "One seed"
    return [Row(height, painters[at : at + columns], columns, note) for at in range(0, len(painters), columns)]


def _limits(drawing: Bars, panels_: Sequence[Sequence[Bar]]) -> tuple[float, float]:
    """Of the axis that all panels share: from 0, or from below it, to the farthest seed."""
    seeds = np.concatenate([one.seeds for own in panels_ for *_, one in own])
    values = np.array([0.0, drawing.level or 0.0, *seeds])
    low, high = float(values.min()), float(values.max())
    room = 0.06 * ((high - low) or 1.0)
    return low - room if low < 0 else 0.0, high + room


def _paint(
    drawing: Bars, model: str, own: Sequence[Bar], limits: tuple[float, float], axes: Axes, columns: int
) -> None:
    for line, (label, style, numbers) in enumerate(own):
        mean, *_ = numbers.summary()
        if np.isfinite(mean):
            axes.barh(line, mean, height=0.4, color=style.color, alpha=0.35, linewidth=0, zorder=2)
            axes.plot([mean, mean], [line - 0.2, line + 0.2], color=style.color, linewidth=2.2, zorder=3)
            axes.plot(
                numbers.seeds,
                line + _apart(len(numbers.seeds)),
                linestyle="none",
                marker="o",
                markersize=4.0,
                markerfacecolor=style.color,
                markeredgecolor=INK,
                markeredgewidth=0.5,
                clip_on=False,
                zorder=4,
            )
        name = label if np.isfinite(mean) else f"{label} (diverged, or no number)"
        place = ("axes fraction", "data")
        axes.annotate(name, (0, line - 0.27), (3, 0), place, "offset points", fontsize=SMALL, va="bottom")
        if drawing.level is not None:  # beside the names, not through them
            axes.vlines(drawing.level, line - 0.25, line + 0.25, color=INK, linewidth=1.2, zorder=3.5)
    axes.set_xlim(*limits)
    axes.set_ylim(len(own) - 0.6, -0.85)
    axes.set_yticks([])
    axes.grid(False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(nbins={1: 8, 2: 5}.get(columns, 4), steps=[1, 2, 2.5, 5, 10]))
    axes.set_title(model)
    axes.set_xlabel(drawing.label or drawing.score.replace("_", " "))


def _apart(count: int) -> np.ndarray:
    """Heights at which dots stand, so that equal ones are seen as several."""
    return np.linspace(-0.11, 0.11, count) if count > 1 else np.zeros(count)
