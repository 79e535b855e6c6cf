"""Whether a curve rises all the way."""

from __future__ import annotations

import numpy as np

from ssm.base.curves import seed_interval
from ssm.claims.estimate import LEVEL, Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.curve import CurveEstimator, Points
from ssm.specs.quantities.order import Order


class OrderEstimator(CurveEstimator[Order]):
    """The smallest of the steps between neighbours, whose intervals (paired by seed) make its own.

    Its lower end is the lowest of their lower ends: not above the smallest step's own, whichever that is, so that no
    correction is due (intersection-union test, Berger 1982). Its upper end is the lowest of their upper ends, which are
    taken at a level that allows for their number (Bonferroni).
    """

    @property
    def logarithmic(self) -> bool:
        return self.spec.ratio

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        smallest: np.ndarray = self.steps(y).min(axis=1)
        return smallest

    def steps(self, y: np.ndarray) -> np.ndarray:
        """(R, K) -> (R, K - 1): above 0 where it rises as it should."""
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(y) if self.spec.ratio else y
            return np.diff(y, axis=1) * (1 if self.spec.direction == "up" else -1)

    def estimate(self, panel: Panel) -> Estimate:
        curves = self.points(panel)
        broken = [str(seed) for seed, one in curves.items() if not np.isfinite(self.steps(one.y[None])).all()]
        if broken:
            raise UndecidableError(f"not a finite number for seed {', '.join(broken)}")
        first, *others = curves.values()
        value, low, high, how = self._over_seeds(list(curves.values())) if others else self._one_seed(first)
        numbers = np.array([value, low, high])
        value, low, high = (np.exp(numbers) if self.spec.ratio else numbers).tolist()
        return Estimate(value, low, high, f"{how}; of {len(first.x) - 1} steps the smallest", self.words(panel))

    def _over_seeds(self, curves: list[Points]) -> tuple[float, float, float, str]:
        steps = self.steps(np.stack([one.y for one in curves]))  # (seeds, K - 1)
        if (np.ptp(steps, axis=0) <= self.spec.rounding).any():
            raise UndecidableError(f"all {len(steps)} seeds gave exactly one step: their spread gives no interval")
        low = min(seed_interval(step, LEVEL)[1] for step in steps.T)
        high = min(seed_interval(step, 1 - (1 - LEVEL) / steps.shape[1])[2] for step in steps.T)
        return float(steps.mean(axis=0).min()), low, high, f"95% Student t over {len(steps)} seeds"

    def _one_seed(self, points: Points) -> tuple[float, float, float, str]:
        if not len(points.draws):
            raise UndecidableError("one seed and one sequence give no interval")
        steps, tail = self.steps(points.draws), (1 - LEVEL) / 2  # (DRAWS, K - 1)
        low = float(np.quantile(steps, tail, axis=0).min())
        high = float(np.quantile(steps, 1 - tail / steps.shape[1], axis=0).min())
        over = f"over {points.sequences} sequences of one seed: other seeds may differ more"
        return float(self.number(points.x, points.y[None])[0]), low, high, f"95% bootstrap {over}"

    def called(self) -> str:
        return f"smallest {'ratio of' if self.spec.ratio else 'step between'} neighbours, going {self.spec.direction}"
