"""Whether a curve rises (or falls) everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.claims.curve import CurveQuantity, Points
from ssm.claims.estimate import LEVEL, Estimate, UndecidableError, seed_interval
from ssm.claims.method import BOOTSTRAP, SEEDS, SEQUENCES, STUDENT, Method
from ssm.claims.panel_tables import PanelTables
from ssm.claims.tails import Tails, bootstrap_tails, exponential_tails, smallest_tails, student_tails


class Order(CurveQuantity):
    """The smallest step between neighbors on a curve: above 0 (above 1 with `ratio`), the curve rises everywhere."""

    kind: Literal["order"] = "order"
    direction: Literal["up", "down"] = "up"  # down: the smallest fall instead of the smallest rise
    ratio: bool = False  # true: use ratios of neighbors instead of differences

    @model_validator(mode="after")
    def _not_compared(self) -> Self:
        if self.compared:
            raise ValueError("an order cannot be compared with another arm; leave 'against' out")
        return self

    @property
    def logarithmic(self) -> bool:
        return self.ratio

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        smallest: np.ndarray = self.steps(y).min(axis=1)
        return smallest

    @np.errstate(divide="ignore", invalid="ignore")
    def steps(self, y: np.ndarray) -> np.ndarray:
        """Steps between neighbors, positive in the expected direction. (R, K) -> (R, K - 1)"""
        y = np.log(y) if self.ratio else y
        return np.diff(y, axis=1) * (1 if self.direction == "up" else -1)

    def estimate(self, panel: PanelTables) -> Estimate:
        """The interval of the smallest step, from the intervals of all steps, paired by seed.

        Its lower end is the lowest of their lower ends. It is never above that of the truly smallest step, so no
        correction is needed (intersection-union test, Berger 1982). Its upper end is the lowest of their upper ends,
        at a level corrected for the number of steps (Bonferroni).
        """
        curves = self.points(panel)
        broken = [str(seed) for seed, one in curves.items() if not np.isfinite(self.steps(one.y[None])).all()]
        if broken:
            raise UndecidableError(f"no finite number for seed {', '.join(broken)}")
        first, *others = curves.values()
        value, low, high, method, each = self._over_seeds(list(curves.values())) if others else self._one_seed(first)
        numbers = np.array([value, low, high])
        value, low, high = (np.exp(numbers) if self.ratio else numbers).tolist()
        tails = exponential_tails(smallest_tails(each)) if self.ratio else smallest_tails(each)
        method = replace(method, steps=len(first.x) - 1)
        return Estimate(value, low, high, method, self.words(panel), self._by_seed(curves), tails)

    def _by_seed(self, curves: Mapping[int, Points]) -> dict[int, tuple[float, ...]]:
        """Seed -> all its steps."""
        steps = {seed: self.steps(one.y[None])[0] for seed, one in curves.items()}
        return {seed: tuple((np.exp(one) if self.ratio else one).tolist()) for seed, one in steps.items()}

    def _over_seeds(self, curves: list[Points]) -> tuple[float, float, float, Method, list[Tails]]:
        """Value, low, high, method, and the tails of every step."""
        steps = self.steps(np.stack([one.y for one in curves]))  # (seeds, K - 1)
        if (np.ptp(steps, axis=0) <= self.rounding).any():
            raise UndecidableError(f"all {len(steps)} seeds gave exactly the same step: no spread, no interval")
        low = min(seed_interval(step)[1] for step in steps.T)
        high = min(seed_interval(step, 1 - (1 - LEVEL) / steps.shape[1])[2] for step in steps.T)
        method = Method(STUDENT, len(steps), SEEDS, self.ratio)
        tails = [student_tails(partial(np.subtract, step)) for step in steps.T]
        return float(steps.mean(axis=0).min()), low, high, method, tails

    def _one_seed(self, points: Points) -> tuple[float, float, float, Method, list[Tails]]:
        if not len(points.draws):
            raise UndecidableError("one sequence of one seed gives no interval")
        steps, tail = self.steps(points.draws), (1 - LEVEL) / 2  # (DRAWS, K - 1)
        if (np.ptp(steps, axis=0) <= self.rounding).any():
            raise UndecidableError("all sequences of one seed gave exactly the same step: no spread, no interval")
        low = float(np.quantile(steps, tail, axis=0).min())
        high = float(np.quantile(steps, 1 - tail / steps.shape[1], axis=0).min())
        value, tails = float(self.number(points.x, points.y[None])[0]), [bootstrap_tails(step) for step in steps.T]
        return value, low, high, Method(BOOTSTRAP, points.sequences, SEQUENCES), tails

    def describe_number(self) -> str:
        return f"smallest {'ratio of' if self.ratio else 'step between'} neighbors, going {self.direction}"
