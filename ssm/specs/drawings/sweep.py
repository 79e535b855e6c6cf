"""The spec of a score against a swept number."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.base.errors import nearest
from ssm.specs.base import Distinct, Name, Setting
from ssm.specs.drawings.base import OfArms, insist_on_arms
from ssm.specs.families import Member, is_number
from ssm.specs.quantities.sweep import Arms, Numbers


class SweepCurves(OfArms):
    """`of` (a quantity without its arm) against the number in which arms differ: a panel a model, a curve a family.

    On a grid the number is the axis `over`, and a curve has the same values of all other axes of its family; `where`
    chooses some of them. Or `families`, by name, each with its arms at the numbers `at`.
    """

    kind: Literal["sweep"] = "sweep"
    over: Name | None = None
    where: dict[Name, Setting] = {}
    families: Annotated[dict[Name, Arms], Field(min_length=1)] | None = None
    at: Numbers | None = None
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # a line of reference, such as chance
    reference: Annotated[tuple[Name, ...], Field(strict=False), Distinct] = ()  # arms without the number: level lines
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

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("reference", self.reference, arms, ())
        for name, members in (self.families or {}).items():
            insist_on_arms(f"families.{name}", members, arms, ())
        values: dict[str, list[Setting]] = {}
        for axis, value in (pair for own in families.values() for one in own.values() for pair in one.axes.items()):
            values.setdefault(axis, []).append(value)
        for field, axes in (("over", [self.over] if self.over else []), ("where", self.where)):
            for axis in axes if values or not families else ():
                if axis not in values:
                    raise ValueError(f"{field}: no axis '{axis}' in any grid; {nearest(axis, values)}")
        if not all(map(is_number, values.get(str(self.over), []))):
            raise ValueError(f"over: not all values of '{self.over}' are numbers; 'bars' draws what has names")
