"""The spec of one quantity against another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field

from ssm.specs.base import Distinct, Name
from ssm.specs.drawings.base import OfArms, insist_on_arms
from ssm.specs.families import Member
from ssm.specs.quantities.base import Quantity
from ssm.specs.quantities.sweep import Of, quantity_of


class TradeOff(OfArms):
    """`of` (a quantity without its arm) against `cost`, another one: a panel a model, a point an arm."""

    kind: Literal["trade_off"] = "trade_off"
    cost: Of  # the x axis; without its arm
    # arms, or families; None: all that have both
    arms: Annotated[tuple[Name, ...], Field(strict=False, min_length=1), Distinct] | None = None
    level: float | None = None  # of `of`: a line of reference
    label: str | None = None  # of the y axis
    cost_label: str | None = None  # of the x axis

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        insist_on_arms("arms", self.arms or (), arms, families)

    def quantities(self, arm: str) -> tuple[Quantity, Quantity]:
        """What is drawn of an arm: along x, and along y."""
        return quantity_of(self.cost, arm), self.quantity(arm)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for one in self.quantities("arm") for name in one.names)

    def named(self) -> dict[str, tuple[str, str | None]]:
        cost = self.quantities("arm")[0].named()
        return super().named() | {f"cost.{field}": one for field, one in cost.items()}
