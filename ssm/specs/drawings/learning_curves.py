"""The spec of learning curves."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing
from ssm.specs.reader import ColumnReader


class LearningCurves(ColumnReader, SeriesDrawing):
    """A column against the step of training: a panel a model, a curve an arm, means of neighbouring steps."""

    kind: Literal["learning_curves"] = "learning_curves"
    measurement: Name = "learning_curve"
    column: Name = "loss"
    x: Name = "step"
    points: PositiveInt = 60  # of a curve, at most: each the mean over so many steps
    log_y: bool = False
    level: float | None = None  # a line of reference, such as chance
    y_label: str | None = None
