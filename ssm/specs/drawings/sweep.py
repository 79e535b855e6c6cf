"""The spec of a score against a swept number."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.base import Name, Setting
from ssm.specs.drawings.base import OfArms
from ssm.specs.quantities.sweep import Arms, Numbers


class SweepCurves(OfArms):
    """`of` (a quantity without its arm) against the number in which arms differ: a panel a model, a curve a family.

    On a grid the number is the axis `over`, and a family has the same values of all its other axes; `where` chooses
    some of them. Or `families`, by name, each with its arms at the numbers `at`.
    """

    kind: Literal["sweep"] = "sweep"
    over: Name | None = None
    where: dict[Name, Setting] = {}
    families: Annotated[dict[Name, Arms], Field(min_length=1)] | None = None
    at: Numbers | None = None
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # a line of reference, such as chance
    x_label: str | None = None
    y_label: str | None = None

    @model_validator(mode="after")
    def _families_or_axis(self) -> Self:
        if (self.over is None) == (self.families is None):
            raise ValueError("give either 'families' with their numbers 'at', or 'over', an axis of the figure's grid")
        if (self.at is None) == (self.over is None) or (self.where and self.over is None):
            raise ValueError("'at' goes with 'families', and 'where' with 'over'")
        for name, arms in (self.families or {}).items():
            if len(arms) != len(self.at or ()):
                raise ValueError(f"families.{name}: {len(arms)} arms at {len(self.at or ())} numbers ('at')")
        return self
