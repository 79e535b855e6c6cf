"""The spec of an order."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from ssm.specs.quantities.curve import CurveQuantity


class Order(CurveQuantity):
    """The smallest step between neighbours on a curve: above 0 (above 1 with `ratio`), the curve rises all the way."""

    kind: Literal["order"] = "order"
    direction: Literal["up", "down"] = "up"
    ratio: bool = False  # of neighbours, instead of their difference

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if self.compared:
            raise ValueError("an order is not told apart from another one; leave 'against' out")
        return self
