"""A quantity of every arm as a bar, with every seed as a dot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ssm.figures.colors import INK
from ssm.figures.data import panels
from ssm.figures.numbers import Numbers, numbers
from ssm.figures.panel import Row
from ssm.figures.style import ArmStyle
from ssm.specs.drawings.bars import Bars
from ssm.specs.figure import FigureTask

BAR = 0.27  # inches: a bar with the room around it
COLUMNS = 2  # panels side by side: the arms' names stand left of the first


@dataclass(frozen=True)
class BarPanel:
    """The bars of one model. Calling it paints it."""

    bars: list[Numbers]
    labels: list[str]
    styles: dict[str, ArmStyle]
    title: str
    x_label: str
    limits: tuple[float, float]
    level: float | None
    named: bool  # whether the arms' names stand beside the bars

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`: the first arm on top."""
        for place, (one, label) in enumerate(zip(self.bars, self.labels, strict=True)):
            style, inside = self.styles[one.series.arm], one.values[np.isfinite(one.values)]
            if math.isfinite(one.mean):
                axes.barh(place, one.mean, height=0.72, color=style.color, alpha=0.55, label=f"_{label}")
            else:
                axes.text(0.01, place, "diverged", transform=axes.get_yaxis_transform(), va="center")
            axes.plot(inside, np.full(len(inside), place), "o", color=INK, markersize=3, alpha=0.8, zorder=3)
        if self.level is not None:
            axes.axvline(self.level, color=INK, linewidth=0.9, linestyle=(0.0, (4.0, 2.0)))
        axes.set_title(self.title)
        axes.set_xlabel(self.x_label)
        axes.set_xlim(*self.limits)
        axes.set_ylim(len(self.bars) - 0.4, -0.6)
        axes.set_yticks(range(len(self.bars)), self.labels if self.named else [""] * len(self.bars))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")


def bars(drawing: Bars, task: FigureTask, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
    """A panel per model, all of them to one scale."""
    found = {panel: numbers(drawing, task, tables, panel) for panel in panels(task)}
    found = {panel: own for panel, own in found.items() if own}
    finite = [value for own in found.values() for one in own for value in one.values if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    room = 0.04 * ((high - low) or 1.0)
    limits = (low - room * (low < 0), high + room)
    places, rows = list(found.items()), []
    columns = min(COLUMNS, max(1, len(places)))
    for start in range(0, len(places), columns):
        row = places[start : start + columns]
        same = all([one.series.arm for one in own] == [one.series.arm for one in row[0][1]] for _, own in row)
        painted = [
            BarPanel(
                own,
                [_label(task, one, own) for one in own],
                styles,
                panel,
                drawing.y_label or str(drawing.of["kind"]).replace("_", " "),
                limits,
                drawing.level,
                named=number == 0 or not same,
            )
            for number, (panel, own) in enumerate(row)
        ]
        seeds = sorted({len(one.values) for _, own in row for one in own})
        counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        note = f"Bar: mean over {counted} seeds. Dots: the seeds" if seeds[-1] > 1 else ""
        rows.append(Row(0.75 + BAR * max(len(own) for _, own in row), painted, columns, note))
    return rows


def _label(task: FigureTask, one: Numbers, own: list[Numbers]) -> str:
    """An arm's name; where all are of one family, without what they share."""
    entry = task.figure.arms.get(one.series.arm)
    shared = len({other.series.family for other in own}) == 1
    if entry is None or entry.member is None or not shared:
        return one.series.label
    return ", ".join(place.words for place in entry.member.places)
