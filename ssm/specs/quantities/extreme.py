"""The spec of a curve's largest or smallest value."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ssm.specs.base import Name
from ssm.specs.quantities.curve import CurveQuantity


class Extreme(CurveQuantity):
    """The largest value of a curve, or the smallest: what holds of it holds all along the curve."""

    later: ClassVar[frozenset[str]] = frozenset({"among"})
    kind: Literal["extreme"] = "extreme"
    which: Literal["largest", "smallest"]
    among: Name | None = None  # another key: of the curves at each of its values, the one with the extreme

    @model_validator(mode="after")
    def _of_a_table(self) -> Self:
        if self.among is not None and (self.sweep is not None or self.among in (self.x, *self.where)):
            raise ValueError("'among' is another key of the table than 'x' and those of 'where'; a sweep has none")
        return self
