"""The spec of heat maps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing
from ssm.specs.reader import ColumnReader

Limits = Annotated[tuple[float, float], Field(strict=False)]


class HeatMap(ColumnReader, SeriesDrawing):
    """A column of a measurement's table over two of its keys, or over a key and an axis of the grid.

    A panel for every model and arm, members along an axis that is drawn in one; a cell is a mean over seeds.
    """

    kind: Literal["heat_map"] = "heat_map"
    x: Name  # a key of the table, or else an axis
    y: Name
    exponential: bool = False  # the column is a logarithm (a loss in nats), of which the exponential is drawn
    log_color: bool = False
    limits: Limits | None = None  # of the colours; None: of the values that there are
    x_label: str | None = None
    y_label: str | None = None
    column_label: str | None = None

    @model_validator(mode="after")
    def _two(self) -> HeatMap:
        if self.x == self.y:
            raise ValueError(f"x and y are both '{self.x}'")
        if self.limits is not None and not self.limits[0] < self.limits[1]:
            raise ValueError(f"limits must rise, got {list(self.limits)}")
        if self.log_color and self.limits is not None and self.limits[0] <= 0:
            raise ValueError("log_color: limits must be above 0")
        return self
