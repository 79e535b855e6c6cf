"""The spec of a heat map."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import SeriesDrawing
from ssm.specs.reader import ColumnReader


class HeatMap(ColumnReader, SeriesDrawing):
    """A column against two others: a panel an arm, means over seeds and whatever else was measured there."""

    kind: Literal["heat_map"] = "heat_map"
    x: Name
    y: Name
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None  # None: all
    limits: Annotated[tuple[float, float], Field(strict=False)] | None = None  # of the colours; None: of what is there
    cells: bool = True  # every cell holds its number
    percent: bool = False  # numbers are shares
    x_label: str | None = None
    y_label: str | None = None
