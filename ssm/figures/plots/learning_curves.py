"""A column by training step."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ssm.claims.reader import ColumnReader
from ssm.claims.series import PlannedFigure
from ssm.figures.data import Curve, Line, chosen_arms, column_lines, over_seeds, panels
from ssm.figures.panel import CurvePanel, note_on, rows_of, x_range
from ssm.figures.plot import ChosenArms, SeriesPlot, Titled
from ssm.figures.rows import Row, columns_for
from ssm.figures.style import ArmStyle
from ssm.specs.base import Name


class LearningCurves(ChosenArms, Titled, ColumnReader, SeriesPlot):
    """A column by training step: a panel for each model, a curve for each arm, means over neighboring steps."""

    kind: Literal["learning_curves"] = "learning_curves"
    measurement: Name = "learning_curve"  # name of the measurement that is read
    column: Name = "loss"  # column of its table
    x: Name = "step"  # column on the horizontal axis
    points: PositiveInt = 60  # maximal number of points of a curve; each is a mean over neighboring steps
    each_seed: bool = False  # true: draw every seed instead of means over seeds, which hide spikes and late learners
    log_y: bool = False  # true: logarithmic vertical axis
    level: float | None = None  # a reference line, such as chance
    y_label: str | None = None  # label of the vertical axis; none: the name of the column

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """A panel for each model, with a shared y axis."""
        looks = self.looks(task, styles)
        styles = styles | {look.name: look.style for look in looks.values()}
        found = {
            model: [looks[curve.arm].of(curve) for curve in _curves(self, task, tables, model)]
            for model in panels(task)
        }
        plots = [
            CurvePanel(
                own,
                styles,
                self.title_of(task, model),
                self.x.replace("_", " "),
                self.y_label or self.column.replace("_", " "),
                x_range(own, logarithmic=False),
                tokens=False,
                log_x=False,
                log_y=self.log_y,
                level=self.level,
                seeds="lines" if self.each_seed else "band",
            )
            for model, own in found.items()
            if own
        ]
        note = note_on([curve for own in found.values() for curve in own], "lines" if self.each_seed else "band")
        return rows_of(plots, 3.0 if columns_for(len(plots)) == 1 else 2.5, note)


def _curves(plot: LearningCurves, task: PlannedFigure, tables: Path, panel: str) -> list[Curve]:
    wanted = chosen_arms(task, plot.arms)
    lines = [one for one in column_lines(task, tables, panel, plot, plot.x) if one[0].arm in wanted]
    lengths = {arm: [len(line.x) for series, line in lines if series.arm == arm] for arm in wanted}
    # Equal for all seeds of an arm, because their points are averaged. A run that diverged has fewer steps.
    sizes = {arm: -(-max(own, default=0) // plot.points) for arm, own in lengths.items()}
    return over_seeds([(series, thinned(line, sizes[series.arm])) for series, line in lines])


def thinned(line: Line, size: int) -> Line:
    """Points that are means of `size` neighbors each (the last one of the rest)."""
    starts = np.arange(0, len(line.x), size)
    counts = np.diff([*starts, len(line.x)])
    return Line(*(np.add.reduceat(values, starts) / counts for values in (line.x, line.y, line.error)))
