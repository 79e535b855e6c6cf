"""Where a curve passes a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from ssm.claims.curve import CurveQuantity, Points
from ssm.claims.estimate import UndecidableError


class Crossing(CurveQuantity):
    """The x at which a curve passes a value, such as the step at which an accuracy is reached.

    It is the first x from which on the curve stays past the value for `holds` points. It is interpolated linearly
    between the last point before and the first point after. With `log_x`, arms are compared by their ratio.

    With `censored`, a curve that never passes the value counts as passing it at its last x. One that starts past it
    counts with its first x. So a ratio of two arms, whose curves must have the same ends, is nearer to 1. A curve with
    an infinite value, or with one that is not a number, still has none if it never passes.
    """

    later: ClassVar[frozenset[str]] = frozenset({"censored"})
    kind: Literal["crossing"] = "crossing"
    value: float  # the value that the curve passes
    direction: Literal["up", "down"] = "up"  # whether the curve rises or falls through the value
    holds: PositiveInt = 1  # number of points for which the curve must stay past the value
    log_x: bool = False  # true: interpolate and average the logarithm of x
    censored: bool = False  # true: curves that do not pass the value have the x of one of their ends

    @property
    def logarithmic(self) -> bool:
        return self.log_x

    @np.errstate(divide="ignore", invalid="ignore")
    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """NaN for a curve that starts past the value, or never passes it, if they are not `censored`."""
        count = len(x)
        x = np.log(x) if self.log_x else x
        height = (y - self.value) * (1 if self.direction == "up" else -1)  # (R, K)
        passed = height >= 0
        stays = passed.copy()
        for step in range(1, min(self.holds, count + 1)):
            stays[:, : count - step] &= passed[:, step:]
            stays[:, count - step :] = False  # too close to the end to know
        first = stays.argmax(axis=1)  # (R,); 0: past the value from the start, or never
        rows, before = np.arange(len(y)), np.maximum(first - 1, 0)
        below, above = height[rows, before], height[rows, first]
        there = x[before] + below / (below - above) * (x[first] - x[before])
        ends = np.where(stays[:, 0], x[0], np.where(np.isfinite(y).all(axis=1), x[-1], np.nan))  # (R,)
        return np.where(first > 0, there, ends if self.censored else np.nan)

    def require_comparable(self, own: Mapping[int, Points], others: Mapping[int, Points]) -> None:
        ends = {(points.x[0], points.x[-1]) for points in (*own.values(), *others.values())}
        if self.censored and len(ends) > 1:
            raise UndecidableError("the curves begin or end at different x, so their ends cannot be compared")

    def missing(self, points: Points) -> str:
        return f"the curve does not go {self._through()} between x = {points.x[0]:g} and {points.x[-1]:g}"

    def describe_number(self) -> str:
        never = ", or the end of a curve that does not" if self.censored else ""
        return f"first x at which the curve goes {self._through()}{never}"

    def _through(self) -> str:
        stays = f" and stays there for {self.holds} points" if self.holds > 1 else ""
        return f"{self.direction} through {self.value:g}{stays}"
