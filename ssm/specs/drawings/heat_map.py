"""The spec of a heat map."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import SeriesDrawing, insist_on_arms
from ssm.specs.families import Member
from ssm.specs.reader import ColumnReader


class HeatMap(ColumnReader, SeriesDrawing):
    """A column against two others: a panel an arm, means over seeds and whatever else was measured there.

    One of the two, or both, may be an axis of a grid: then the members along it have one panel.
    """

    kind: Literal["heat_map"] = "heat_map"
    x: Name  # a column, or else an axis
    y: Name
    # arms, or families; None: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    limits: Annotated[tuple[float, float], Field(strict=False)] | None = None  # of the colours; None: of what is there
    cells: bool = True  # every cell holds its number
    percent: bool = False  # numbers are shares
    exponential: bool = False  # the column is a logarithm (a loss in nats), of whose mean the exponential is drawn
    log_color: bool = False
    classes: bool = False  # of a length_class table: every cell has the symbol of its class (ls Def. 2.1)
    x_label: str | None = None
    y_label: str | None = None

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.x == self.y:
            raise ValueError(f"x and y are both '{self.x}'")
        if self.log_color and self.limits is not None and self.limits[0] <= 0:
            raise ValueError("log_color: limits must be above 0")
        return self

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)
