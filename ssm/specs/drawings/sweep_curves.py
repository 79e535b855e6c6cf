"""The spec of curves over a grid's axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field

from ssm.base.errors import nearest
from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import QuantityDrawing
from ssm.specs.families import Member, is_number


class SweepCurves(QuantityDrawing):
    """A quantity against the numbers of a grid's axis: a panel a model, a curve for every value of the other axes."""

    kind: Literal["sweep_curves"] = "sweep_curves"
    over: Name
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # a line of reference, such as chance
    reference: Annotated[
        tuple[str, ...], Field(strict=False), Distinct
    ] = ()  # arms that do not have the axis: a level line each
    x_label: str | None = None

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        super().check(families, arms)
        for arm in self.reference:
            if arm not in arms:
                raise ValueError(f"reference: unknown arm '{arm}'; {nearest(arm, arms)}")
        axes: dict[str, bool] = {}
        for members in families.values():
            for axis, value in (pair for member in members.values() for pair in member.axes.items()):
                axes[axis] = axes.get(axis, True) and is_number(value)
        if self.over not in axes and any(families.values()):
            raise ValueError(f"over: no axis '{self.over}' in any grid; {nearest(self.over, axes)}")
        if not axes.get(self.over, True):
            raise ValueError(f"over: not all values of '{self.over}' are numbers; 'bars' draws what has names")
