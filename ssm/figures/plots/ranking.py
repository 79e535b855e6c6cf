"""Models in the order of a quantity: a line for each model, and small panels of their perplexity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.series import PlannedFigure
from ssm.figures.data import panels, perplexity_curves
from ssm.figures.panel import LEVEL, log_axis, seeds_of, small_rows, token_panel
from ssm.figures.plot import ChosenArms, Look, OfArms
from ssm.figures.rows import Row
from ssm.figures.style import SMALL, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 6  # small panels per row
SMALL_PANEL = 1.15, 0.8  # inches: height of their rows, and the lowest legible height
LINE, AXIS, LEAST = 0.24, 0.7, 0.165  # inches: height of a line, of the axis, and the lowest legible height of a line


@dataclass(frozen=True)
class RankingPanel:
    """A line for each model: a marker and an interval for each arm, and a dot for each seed."""

    names: Mapping[str, str]  # model -> name, from top to bottom
    estimates: Mapping[tuple[str, str], Estimate | None]  # (model, arm) -> its number; None: it has none
    looks: Mapping[str, Look]  # of the arms
    x_label: str
    level: float | None
    logarithmic: bool

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        for place, (arm, look) in enumerate(self.looks.items()):
            label, shift = look.label, 0.5 * ((place + 0.5) / len(self.looks) - 0.5)
            for line, model in enumerate(self.names):
                found = self.estimates[model, arm]
                if found is not None:
                    _estimate(axes, found, line + shift, look.style, label)
                    label = "_"
        if self.logarithmic:
            axes.set_xscale("log")
            log_axis(axes.xaxis, *axes.get_xlim(), most=9)
        if self.level is not None:
            axes.axvline(self.level, **LEVEL, zorder=1.5)
        axes.set_yticks(range(len(self.names)), list(self.names.values()), fontsize=SMALL)
        axes.set_ylim(len(self.names) - 0.4, -0.6)
        axes.set_xlabel(self.x_label)


def _estimate(axes: Axes, found: Estimate, height: float, style: ArmStyle, label: str) -> None:
    """A marker at the number, a line over its interval, and small dots at the seeds."""
    axes.plot([found.low, found.high], [height, height], color=style.color, linewidth=1.4, zorder=2.5)
    look: Any = style.keywords() | {"linestyle": "none", "markersize": 5.0}
    axes.plot([found.value], [height], label=label, zorder=4, **look)
    seeds = [value for value in found.by_seed.values() if isinstance(value, float)]
    dots: Any = {"marker": "o", "markersize": 2.0, "color": style.color, "alpha": 0.55, "linestyle": "none"}
    axes.plot(seeds, [height] * len(seeds), zorder=3, **dots)


class Ranking(ChosenArms, OfArms):
    """The models of a figure in the order of a quantity `of` of the first arm, the largest first.

    A model without a number, such as one that diverged, is above all others.

    A line for each model has the number of each arm with its 95% interval, and a dot for each seed. With `curves`,
    small panels of perplexity by position are above it, in the same order.
    """

    kind: Literal["ranking"] = "ranking"
    label: str | None = None  # label of the axis; none: the name of the quantity
    level: float | None = None  # a reference line, such as a ratio of 1
    curves: bool = False  # true: draw the perplexity of each model by position too

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """Small panels in rows of six, if wanted, and below them one panel with a line for each model."""
        looks = self.looks(task, styles)
        arms, models = list(looks), panels(task)
        if not (models and arms):
            return []
        found = {(model, arm): self._estimate(task, tables, model, arm) for model in models for arm in arms}
        leading = {model: found[model, arms[0]] for model in models}
        models.sort(key=lambda model: -math.inf if (one := leading[model]) is None else -one.value)
        names = {model: task.name_of(model) for model in models}
        ranking = RankingPanel(
            {model: name + (" (no number)" if leading[model] is None else "") for model, name in names.items()},
            found,
            looks,
            self.label or self.score.replace("_", " "),
            self.level,
            self.quantity().logarithmic,
        )
        seeds = [len(one.by_seed) for one in found.values() if one is not None] or [0]
        over = f" over {seeds_of(seeds)}. Small dot: a seed" if max(seeds) > 1 else " (one seed)"
        note = f"Horizontal line: 95% interval{over}"
        lines = len(models)
        row = Row(AXIS + LINE * lines, [ranking], 1, note, AXIS + LEAST * lines)
        return [*_small_panels(task, tables, names, arms, styles), row] if self.curves else [row]

    def _estimate(self, task: PlannedFigure, tables: Path, model: str, arm: str) -> Estimate | None:
        """The number of an arm with the interval of a claim; None if there is no such arm, or no number."""
        if not any((series.panel, series.arm) == (model, arm) for series in task.series):
            return None
        try:
            return self.quantity(arm).estimate(PanelTables(task, model, tables))
        except UndecidableError:
            return None


def _small_panels(
    task: PlannedFigure, tables: Path, names: Mapping[str, str], arms: list[str], styles: dict[str, ArmStyle]
) -> list[Row]:
    """The perplexity of each model by position. The first panel of a row has the labels of the y axis."""
    drawn = []
    for model, name in names.items():
        curves = [one for one in perplexity_curves(task, tables, model) if one.arm in arms]
        if curves:
            panel = replace(token_panel(curves, styles, name, "perplexity"), log_y=True, x_label="")
            drawn.append(replace(panel, ticks=(curves[0].context, panel.x_limits[1])))
    note = "Small panels: perplexity by position in tokens. Dotted: training context T"
    return small_rows(drawn, max(1, min(COLUMNS, len(drawn))), note, *SMALL_PANEL)
