"""A quantity of each arm as a bar, with its seeds as dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ssm.base.lazy import ticker
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import INK
from ssm.figures.data import chosen_arms, panels
from ssm.figures.panel import Row, columns_for, wrapped
from ssm.figures.plot import ChosenArms, Numbers, OfArms
from ssm.figures.style import SMALL, WIDTH, ArmStyle, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE, AXIS = 0.42, 0.9  # inches: height of a bar with its name, and of the axis
APART = 0.3  # inches between panels
BESIDE, LETTERS = 4, 22  # most panels of a row, and letters of the longest name for which so many fit
MISSING: dict[str, Any] = {"fontsize": SMALL, "va": "center", "alpha": 0.6}


@dataclass(frozen=True)
class Bar:
    """The numbers of one arm and their look."""

    label: str
    style: ArmStyle
    numbers: Numbers


@dataclass(frozen=True)
class BarPanel:
    """Horizontal bars below each other, each with its name above it. Calling the panel draws it."""

    bars: Mapping[str, Bar]  # by arm
    title: str
    x_label: str
    limits: tuple[float, float]
    level: float | None
    lines: tuple[str, ...]  # arms from top to bottom; an arm without a bar here has one in another panel of the row
    names: Mapping[str, str]  # arm -> name; empty: the first panel of the row has them
    over: bool = False  # names may extend over the next panel
    untitled: bool = False

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        for line, arm in enumerate(self.lines):
            self._bar(axes, line, self.bars.get(arm), self.names.get(arm, ""))
        axes.set_xlim(*self.limits)
        axes.set_ylim(len(self.lines) - 0.6, -0.85)
        axes.set_yticks([])
        axes.patch.set_visible(bool(self.names))  # names of the panel to the left may extend to here
        axes.grid(False, axis="y")
        nbins = {1: 8, 2: 5, 3: 4}.get(columns, 3)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=nbins, steps=[1, 2, 2.5, 5, 10]))
        if self.limits[1] >= 1e4:
            axes.xaxis.set_major_formatter(lambda value, _: number(value))
        axes.set_title("" if self.untitled else self.title)
        axes.set_xlabel(self.x_label)

    def columns(self, panels: Sequence[BarPanel]) -> int:
        """All panels in one row, so that an arm is one line; two panels if a name is too long for that."""
        longest = max(len(bar.label) for panel in panels for bar in panel.bars.values())
        return min(len(panels), BESIDE if longest <= LETTERS else 2)

    def share_row(self, panels: Sequence[BarPanel], height: float, columns: int) -> tuple[float, Sequence[BarPanel]]:
        """The same arms in the same lines of all panels. The first panel of a row has their names."""
        labels = {arm: bar.label for panel in panels for arm, bar in panel.bars.items()}
        lines = tuple(labels)
        found = [
            replace(
                panel,
                lines=lines,
                names={} if place % columns else labels,
                over=columns > 2,
                untitled=place > 0 and panel.title == panels[0].title,
                x_label=wrapped(panel.x_label, WIDTH / columns - APART),
            )
            for place, panel in enumerate(panels)
        ]
        return AXIS + LINE * len(lines), found

    def _bar(self, axes: Axes, line: int, bar: Bar | None, name: str) -> None:
        if bar is not None:
            mean, *_ = bar.numbers.summary()
            if np.isfinite(mean):
                self._painted(axes, line, mean, bar)
            else:
                name += " (diverged, or no number)"
        else:  # a missing bar must not look like a bar of length zero
            axes.annotate("not measured", (0, line), (3, 0), ("axes fraction", "data"), "offset points", **MISSING)
        at, place = (0, line - 0.27), ("axes fraction", "data")
        text = axes.annotate(name.strip(), at, (3, 0), place, "offset points", fontsize=SMALL, va="bottom")
        text.set_in_layout(not self.over)
        if self.level is not None and bar is not None:  # a short line that does not cross the names
            axes.vlines(self.level, line - 0.25, line + 0.25, color=INK, linewidth=1.2, zorder=3.5)

    @staticmethod
    def _painted(axes: Axes, line: int, mean: float, bar: Bar) -> None:
        seeds, color = bar.numbers.seeds, bar.style.color
        axes.barh(line, mean, height=0.4, color=color, alpha=0.35, linewidth=0, zorder=2)
        axes.plot([mean, mean], [line - 0.2, line + 0.2], color=color, linewidth=2.2, zorder=3)
        axes.plot(
            seeds,
            line + _offsets(len(seeds)),
            linestyle="none",
            marker="o",
            markersize=4.0,
            markerfacecolor=color,
            markeredgecolor=INK,
            markeredgewidth=0.5,
            clip_on=False,
            zorder=4,
        )


class Bars(ChosenArms, OfArms):
    """The quantity `of` for each arm: a panel for each model, a bar for each arm, a dot for each seed."""

    kind: Literal["bars"] = "bars"
    level: float | None = None  # a reference line, such as chance
    label: str | None = None  # label of the axis; none: the name of the quantity

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, on one shared axis."""
        labels = {series.arm: series.label for series in task.series}
        wanted = chosen_arms(task, self.arms)
        found: dict[str, dict[str, Bar]] = {}
        for model in panels(task):
            numbers = {arm: self.numbers(arm, task, tables, model) for arm in wanted}
            own = {arm: Bar(labels[arm], styles[arm], one) for arm, one in numbers.items() if one is not None}
            if own:
                found[model] = own
        if not found:
            return []
        columns = columns_for(len(found))
        every = [bar for own in found.values() for bar in own.values()]
        label, limits = self.label or self.score.replace("_", " "), _limits(self, every)
        plotters = [
            BarPanel(own, task.title_of(model), label, limits, self.level, tuple(own), labels)
            for model, own in found.items()
        ]
        height = AXIS + LINE * max(map(len, found.values()))
        seeds = max(len(bar.numbers.seeds) for bar in every)
        note = f"Bar: mean over {seeds} seeds. Dot: a seed" if seeds > 1 else "One seed"
        return [Row(height, plotters[at : at + columns], columns, note) for at in range(0, len(plotters), columns)]


def _limits(plot: Bars, every: Sequence[Bar]) -> tuple[float, float]:
    """Limits of the axis that all panels share: they include 0 and all seeds."""
    seeds = np.concatenate([bar.numbers.seeds for bar in every])
    values = np.array([0.0, plot.level or 0.0, *seeds])
    low, high = float(values.min()), float(values.max())
    room = 0.06 * ((high - low) or 1.0)
    return low - room if low < 0 else 0.0, high + room


def _offsets(count: int) -> np.ndarray:
    """Vertical offsets of the dots, so that equal seeds are visible as several dots."""
    return np.linspace(-0.11, 0.11, count) if count > 1 else np.zeros(count)
