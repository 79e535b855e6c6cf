"""The spec of bars."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import OfArms, insist_on_arms
from ssm.specs.families import Member


class Bars(OfArms):
    """`of` (a quantity without its arm) of every arm: a panel a model, a bar an arm, a dot a seed."""

    kind: Literal["bars"] = "bars"
    # arms, or families; None: all
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    level: float | None = None  # a line of reference, such as chance
    label: str | None = None  # of the axis

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)
