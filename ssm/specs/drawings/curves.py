"""The spec of curves of any column against any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import SeriesDrawing, insist_on_arms
from ssm.specs.families import Member
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import OfFigure
from ssm.specs.reader import ColumnReader


class Curves(ColumnReader, SeriesDrawing):
    """A column of a measurement's table against another: a panel a model, a curve an arm, a mean over seeds.

    With `against` the panels named there alone, and of each arm's curve the difference from that of the same arm in
    another panel, seed by seed: of logarithms the logarithm of a ratio. With `by` every value of that key has a curve,
    with `split` a panel. A measurement of the figure's own, of no arm, is drawn as that of one arm.
    """

    kind: Literal["curves"] = "curves"
    of_figure: ClassVar[bool] = True
    x: Name  # a key; `position` stands for the middle of the bins of a table that has them
    tokens: bool = (
        False  # x counts tokens: its axis is logarithmic, in multiples of the training context, which is marked
    )
    exponential: bool = False  # the column is a logarithm (a loss in nats), of which the exponential is drawn
    log_x: bool = False
    log_y: bool = False
    by: Name | None = None  # a key of few values
    split: Name | None = None  # another one
    # arms, or families; None: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    against: dict[Name, Name] = {}  # panel -> the panel that it is compared with
    level: float | None = None  # a line of reference, such as chance
    x_label: str | None = None
    y_label: str | None = None

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if self.split is not None and self.split == self.by:
            raise ValueError(f"split: '{self.split}' is what 'by' has a curve for already; give another key")
        kind = MEASUREMENTS.get(self.measurement)  # no measurement of arms bears the name of another kind
        if self.arms is not None and kind is not None and issubclass(kind, OfFigure):
            raise ValueError(f"arms: '{self.measurement}' is measured of the figure, and of no arm")
        return self

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)

    def panels(self) -> tuple[str, ...]:
        return tuple(self.against) + tuple(self.against.values())
