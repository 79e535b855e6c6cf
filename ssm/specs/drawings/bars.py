"""The spec of bars."""

from __future__ import annotations

from typing import Literal

from ssm.specs.drawings.base import QuantityDrawing


class Bars(QuantityDrawing):
    """A quantity of every arm as a bar, with every seed as a dot: a panel a model."""

    kind: Literal["bars"] = "bars"
    level: float | None = None  # a line of reference, such as chance
