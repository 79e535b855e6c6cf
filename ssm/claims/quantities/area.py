"""The area under a curve."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from ssm.claims.curve import CurveQuantity
from ssm.claims.quantity import LimitedQuantity


class Area(LimitedQuantity, CurveQuantity):
    """The mean height of a curve: its area from the first to the last point, by trapezoids, divided by the width."""

    later: ClassVar[frozenset[str]] = frozenset({"limits"})
    kind: Literal["area"] = "area"
    log_x: bool = False  # true: the logarithm of x is the horizontal axis

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x = np.log(x) if self.log_x else x
        height: np.ndarray = (y[:, 1:] + y[:, :-1]) / 2 @ np.diff(x) / (x[-1] - x[0])
        return height

    def describe_number(self) -> str:
        return "mean height (area / width)" + (" on a logarithmic x" if self.log_x else "")
