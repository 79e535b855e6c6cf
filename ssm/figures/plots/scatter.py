"""Two quantities of an arm against each other, a dot for each run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ssm.claims.families import Member
from ssm.claims.reader import Reader
from ssm.claims.series import PlannedFigure
from ssm.claims.sweep import Of, quantity_of
from ssm.figures.data import panels
from ssm.figures.panel import LEVEL, log_axis
from ssm.figures.plot import OfArms, by_seed, require_arms, score_of
from ssm.figures.rows import Row
from ssm.figures.style import ArmStyle, unordered
from ssm.specs.base import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT, LEAST = 3.6, 2.2  # inches


@dataclass(frozen=True)
class ScatterPanel:
    """A marker for each run of each model. Calling the panel draws it."""

    points: Mapping[str, tuple[np.ndarray, np.ndarray]]  # model -> (seeds,) and (seeds,)
    names: Mapping[str, str]  # of the models
    styles: Mapping[str, ArmStyle]  # of the models
    title: str
    x_label: str
    y_label: str
    level: float | None
    logarithmic: bool  # the y axis

    def __call__(self, axes: Axes, columns: int) -> None:
        """Draw on `axes`, in a row with `columns` columns."""
        if self.level is not None:
            axes.axhline(self.level, **LEVEL, zorder=1.5)
        for model, (x, y) in self.points.items():
            look = self.styles[model].keywords() | {"linestyle": "none", "markersize": 6.5}
            axes.plot(x, y, label=self.names[model], zorder=3, **look)
        if self.logarithmic:
            axes.set_yscale("log")
            log_axis(axes.yaxis, *axes.get_ylim())
        axes.set_title(self.title)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)


class Scatter(OfArms):
    """The quantity `of` of an arm, by the quantity `by` of the same run: all models in one panel, a dot for a run.

    A model without one of the two numbers, such as one with a run that diverged, has no dot.
    """

    kind: Literal["scatter"] = "scatter"
    arm: Name  # the arm that is drawn
    by: Of  # the quantity on the horizontal axis, without its key `arm`
    title: str | None = None  # title of the panel
    level: float | None = None  # a horizontal reference line
    x_label: str | None = None  # label of the horizontal axis; none: the name of the quantity `by`
    y_label: str | None = None  # label of the vertical axis; none: the name of the quantity `of`

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().measurement_names, *quantity_of(self.by, self.arm).measurement_names)))

    def nested_readers(self) -> dict[str, Reader]:
        return super().nested_readers() | {"by": quantity_of(self.by, self.arm)}

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        require_arms("arm", [self.arm], arms, ())

    def legend(self) -> Sequence[str]:
        return ()  # but models

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """One panel, with a color and a marker for each model."""
        by = quantity_of(self.by, self.arm)
        points = {}
        for model in panels(task):
            x, y = (by_seed(one, self.arm, task, tables, model) or {} for one in (by, self.quantity(self.arm)))
            seeds = [seed for seed in x if seed in y]
            if seeds:
                points[model] = (np.array([x[seed] for seed in seeds]), np.array([y[seed] for seed in seeds]))
        if not points:
            return []
        panel = ScatterPanel(
            points,
            {model: task.title_of(model) for model in points},
            unordered(list(points)),
            self.title or "",
            self.x_label or score_of(self.by).replace("_", " "),
            self.y_label or self.score.replace("_", " "),
            self.level,
            self.quantity().logarithmic,
        )
        runs = sum(len(x) for x, _ in points.values())
        return [Row(HEIGHT, [panel], 1, f"Dot: one of {runs} runs", LEAST)]
