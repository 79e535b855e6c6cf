"""The spec of the mean of any column at a setting."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from ssm.specs.base import Name
from ssm.specs.quantities.base import ROUNDING, ArmQuantity
from ssm.specs.reader import ColumnReader

Limits = Annotated[tuple[float, float], Field(strict=False)]


class ValueAt(ColumnReader, ArmQuantity):
    """The mean of one column of a measurement's table, over the rows of a setting.

    With `times_context` k, at kT: the rows whose key `along` is kT, or, where the table has bins, those in
    [3/4 kT, kT). Sequences, or whatever else was drawn at random, count alike.
    """

    kind: Literal["value_at"] = "value_at"
    times_context: PositiveFloat | None = None
    along: Name = "position"
    # plain: arms compare by their difference. logarithm: the column is one (a loss in nats), and the number is its
    # exponential. ratio: arms compare by their ratio, of a column that is positive.
    scale: Literal["plain", "logarithm", "ratio"] = "plain"
    limits: Limits | None = None  # the least and the largest value that the column can hold, such as [0, 1]

    @property
    def rounding(self) -> float:
        if self.limits is None or self.scale != "plain":
            return ROUNDING
        return ROUNDING * max(map(abs, self.limits))
