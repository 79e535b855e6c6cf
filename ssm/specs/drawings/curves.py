"""The spec of curves of any column against any other."""

from __future__ import annotations

from typing import Literal

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing
from ssm.specs.reader import ColumnReader


class Curves(ColumnReader, SeriesDrawing):
    """A column of a measurement's table against another: a panel a model, a curve an arm, a mean over seeds."""

    kind: Literal["curves"] = "curves"
    x: Name  # a key; `position` stands for the middle of the bins of a table that has them
    tokens: bool = (
        False  # x counts tokens: its axis is logarithmic, in multiples of the training context, which is marked
    )
    exponential: bool = False  # the column is a logarithm (a loss in nats), of which the exponential is drawn
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # a line of reference, such as chance
    x_label: str | None = None
    y_label: str | None = None
