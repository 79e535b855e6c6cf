"""A quantity of each arm as a bar, with its seeds as dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ssm.base.counting import short
from ssm.base.lazy import ticker
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import INK
from ssm.figures.data import panels
from ssm.figures.panel import seeds_of
from ssm.figures.plot import ChosenArms, Numbers, Titled, Variants
from ssm.figures.rows import Row, columns_for, in_rows
from ssm.figures.style import SMALL, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE, AXIS = 0.42, 0.9  # inches: height of a bar with its name, and of the axis
LEAST = 0.3  # inches: the lowest legible height of a bar with its name
LETTERS = {4: 22, 3: 28}  # panels of a row -> letters of the longest name for which so many fit
MISSING: dict[str, Any] = {"fontsize": SMALL, "va": "center", "alpha": 0.6}
OPACITY = (0.2, 0.7)  # of the bars of an arm, from the first to the last


@dataclass(frozen=True)
class Bar:
    """The numbers of one arm and their look."""

    label: str
    style: ArmStyle
    numbers: Mapping[str, Numbers]  # name of a bar -> its numbers; one without a name if the arm has only one bar


@dataclass(frozen=True)
class BarPanel:
    """Horizontal bars below each other, each arm with its name above it. Calling the panel draws it."""

    bars: Mapping[str, Bar]  # by arm
    title: str
    x_label: str
    limits: tuple[float, float]
    level: float | None
    lines: tuple[str, ...]  # arms from top to bottom; an arm without a bar here has one in another panel of the row
    names: Mapping[str, str]  # arm -> name; empty: the first panel of the row has them
    over: bool = False  # names may extend over the next panel

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        for line, arm in enumerate(self.lines):
            self._line(axes, line, self.bars.get(arm), self.names.get(arm, ""))
        axes.set_xlim(*self.limits)
        axes.set_ylim(len(self.lines) - 0.6, -0.85)
        axes.set_yticks([])
        axes.patch.set_visible(bool(self.names))  # names of the panel to the left may extend to here
        axes.grid(False, axis="y")
        if self.over and not self.names:  # a line at each bar, in place of one that crosses these names
            axes.spines["left"].set_visible(False)
            for line in range(len(self.lines)):
                axes.vlines(self.limits[0], line - 0.22, line + 0.22, color=INK, linewidth=1.0, zorder=3)
        nbins = {1: 8, 2: 5, 3: 4}.get(columns, 3)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=nbins, steps=[1, 2, 2.5, 5, 10]))
        if self.limits[1] >= 1e4:
            axes.xaxis.set_major_formatter(lambda value, _: short(value))
        axes.set_title(self.title)
        axes.set_xlabel(self.x_label)
        several = [name for bar in self.bars.values() for name in bar.numbers if name]
        for name, alpha in _opacities(tuple(dict.fromkeys(several))):
            axes.plot([], [], color=INK, alpha=alpha, marker="s", markersize=9, linestyle="none", label=name)

    def columns(self, panels: Sequence[BarPanel]) -> int:
        """All panels in one row, so that an arm is one line; fewer panels if a name is too long for that."""
        longest = max(len(bar.label) for panel in panels for bar in panel.bars.values())
        return min(len(panels), next((count for count, letters in LETTERS.items() if longest <= letters), 2))

    def share_row(self, panels: Sequence[BarPanel], height: float, columns: int) -> tuple[float, Sequence[BarPanel]]:
        """The same arms in the same lines of all panels. The first panel of a row has their names."""
        labels = {arm: bar.label for panel in panels for arm, bar in panel.bars.items()}
        lines = tuple(labels)
        found = [
            replace(panel, lines=lines, names={} if place % columns else labels, over=columns > 2)
            for place, panel in enumerate(panels)
        ]
        return AXIS + LINE * len(lines), found

    def _line(self, axes: Axes, line: int, bar: Bar | None, name: str) -> None:
        """The bars of one arm, with their name above them."""
        if bar is not None:
            drawn = [(one, alpha) for key, alpha in _opacities(tuple(bar.numbers)) for one in [bar.numbers[key]]]
            height = 0.4 / len(drawn)
            for part, (numbers, alpha) in enumerate(drawn):
                mean, *_ = numbers.summary()
                if np.isfinite(mean):
                    middle = line - 0.2 + (part + 0.5) * height
                    _bar(axes, middle, height, numbers, bar.style.color, alpha)
            if not all(np.isfinite(numbers.summary()[0]) for numbers, _ in drawn):
                name += " (diverged, or no number)"
        else:  # a missing bar must not look like a bar of length zero
            axes.annotate("not measured", (0, line), (3, 0), ("axes fraction", "data"), "offset points", **MISSING)
        at, place = (0, line - 0.27), ("axes fraction", "data")
        text = axes.annotate(name.strip(), at, (3, 0), place, "offset points", fontsize=SMALL, va="bottom")
        text.set_in_layout(not self.over)
        if self.level is not None and bar is not None:  # a short line that does not cross the names
            axes.vlines(self.level, line - 0.25, line + 0.25, color=INK, linewidth=1.2, zorder=3.5)


def _opacities(names: tuple[str, ...]) -> list[tuple[str, float]]:
    """The opacity of each bar of an arm."""
    if len(names) < 2:
        return [(name, 0.35) for name in names]
    return list(zip(names, np.linspace(*OPACITY, len(names)), strict=True))


def _bar(axes: Axes, middle: float, height: float, numbers: Numbers, color: str, alpha: float) -> None:
    """A bar to the mean, with a dot for each seed."""
    mean, *_ = numbers.summary()
    axes.barh(middle, mean, height=height, color=color, alpha=alpha, linewidth=0, zorder=2)
    axes.plot([mean, mean], [middle - height / 2, middle + height / 2], color=color, linewidth=2.2, zorder=3)
    axes.plot(
        numbers.seeds,
        middle + height * _offsets(len(numbers.seeds)),
        linestyle="none",
        marker="o",
        markersize=4.0 if height > 0.3 else 3.0,
        markerfacecolor=color,
        markeredgecolor=INK,
        markeredgewidth=0.5,
        clip_on=False,
        zorder=4,
    )


class Bars(ChosenArms, Titled, Variants):
    """The quantity `of` for each arm: a panel for each model, a bar for each arm and variant, a dot for each seed."""

    kind: Literal["bars"] = "bars"
    together: bool = False  # true: all models in one panel
    level: float | None = None  # a reference line, such as chance
    label: str | None = None  # label of the axis; none: the name of the quantity

    def legend(self) -> Sequence[str]:
        return ()

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, or one for all, on one shared axis."""
        models = panels(task)
        looks = self.looks(task, styles)
        found: dict[str, dict[str, Bar]] = {}  # title of a panel -> its bars
        for model in models:
            for arm, look in looks.items():
                numbers = {name: part.numbers(arm, task, tables, model) for name, part in self.variants().items()}
                there = {name: one for name, one in numbers.items() if one is not None}
                if not there:
                    continue
                label = look.label
                if self.together and len(models) > 1:
                    label = f"{task.name_of(model)}, {label}" if len(looks) > 1 else task.name_of(model)
                title = (self.title or "") if self.together and len(models) > 1 else self.title_of(task, model)
                key = f"{model} {look.name}" if self.together else look.name
                found.setdefault(title, {})[key] = Bar(label, look.style, there)
        if not found:
            return []
        columns = columns_for(len(found))
        every = [bar for own in found.values() for bar in own.values()]
        label, limits = self.label or self.score.replace("_", " "), _limits(self, every)
        plotters = [
            BarPanel(own, title, label, limits, self.level, tuple(own), {arm: bar.label for arm, bar in own.items()})
            for title, own in found.items()
        ]
        lines = max(map(len, found.values()))
        seeds = [len(one.seeds) for bar in every for one in bar.numbers.values()]
        note = f"Bar: mean over {seeds_of(seeds)}. Dot: a seed" if max(seeds) > 1 else "One seed"
        return in_rows(plotters, columns, AXIS + LINE * lines, note, AXIS + LEAST * lines)


def _limits(plot: Bars, every: Sequence[Bar]) -> tuple[float, float]:
    """Limits of the axis that all panels share: they include 0 and all seeds."""
    seeds = np.concatenate([one.seeds for bar in every for one in bar.numbers.values()])
    values = np.array([0.0, plot.level or 0.0, *seeds])
    low, high = float(values.min()), float(values.max())
    room = 0.06 * ((high - low) or 1.0)
    return low - room if low < 0 else 0.0, high + room


def _offsets(count: int) -> np.ndarray:
    """Vertical offsets of the dots, so that equal seeds are visible as several dots."""
    return np.linspace(-0.28, 0.28, count) if count > 1 else np.zeros(count)
