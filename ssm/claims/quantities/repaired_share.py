"""The share of a break that is repaired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.base.lazy import special
from ssm.claims.estimate import LEVEL, Estimate, Reading, UndecidableError, resample
from ssm.claims.method import FIELLER, SEEDS, Method
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import PanelArm
from ssm.claims.restart import RestartQuantity
from ssm.claims.series import Series
from ssm.claims.tails import student_tails


class RepairedShare(RestartQuantity):
    """The share of a break that is repaired: 1 - log R(after) / log R(before), where R is the `restart_ratio`.

    1: no break is left. 0: the arm breaks as much as the arm `before`. It is negative if the arm breaks more. Without
    `pooled`, it is not decided if a seed of `before` does not break.
    """

    later: ClassVar[frozenset[str]] = frozenset({"pooled"})
    kind: Literal["repaired_share"] = "repaired_share"
    before: str  # the arm before the repair
    # true: both logarithms are averaged over seeds before they are divided, with the interval of Fieller (1954). Some
    # seeds may then not break
    pooled: bool = False

    @model_validator(mode="after")
    def _not_compared_if_pooled(self) -> Self:
        if self.pooled and self.compared:
            raise ValueError("'pooled' shares cannot be compared with another arm; leave 'against' out")
        return self

    def arms(self) -> tuple[str, ...]:
        return (*super().arms(), self.before)

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        places = ((panel, self.before), (self.against_panel(panel), self.before))
        return tuple(dict.fromkeys((*super().panel_arms(panel), *places)))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        return super().canonical(panel) | {"before": self.panel_arms(panel).index((panel, self.before))}

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """With one seed, the interval is a bootstrap over sequences.

        Raises:
            UndecidableError: the arm `before` does not break, or has no such seed.
        """
        before, after = self._log_ratios(panel, series)
        if before.value <= 0:
            raise UndecidableError(f"seed {series.seed}: '{self.before}' does not break, so nothing can be repaired")
        pairs = np.stack([before.by_sequence, after.by_sequence], axis=1)  # (S, 2)
        (means,) = resample(pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = 1 - means[:, 1] / means[:, 0]
        return Reading(1 - after.value / before.value, draws=draws, sequences=before.sequences)

    def _log_ratios(self, panel: PanelTables, series: Series) -> tuple[Reading, Reading]:
        """log R of a seed before and after the repair."""
        broken = panel.of_seed(self.before, series.seed, "the arm")
        if broken.context != series.context:
            raise UndecidableError(
                f"'{self.before}' has a training context of {broken.context:,} and '{series.arm}' of "
                f"{series.context:,}; a share of a break needs the same context"
            )
        return self.log_ratio(panel, broken), self.log_ratio(panel, series)

    def estimate(self, panel: PanelTables) -> Estimate:
        every = panel.series(self.arm)
        if not self.pooled or len(every) < 2:
            return super().estimate(panel)
        pairs = {seed: [one.value for one in self._log_ratios(panel, series)] for seed, series in every.items()}
        before, after = np.array(list(pairs.values())).T  # (seeds,) each
        by_seed = {seed: dict(zip(("before", "after"), map(float, one), strict=True)) for seed, one in pairs.items()}
        if not np.isfinite([before, after]).all():
            raise UndecidableError("no finite number for some seeds", by_seed)
        value = 1 - float(after.mean() / before.mean())
        if float(np.ptp(after - (1 - value) * before)) <= self.rounding:
            raise UndecidableError(f"all {len(pairs)} seeds gave exactly {value:g}: no spread, no interval", by_seed)
        ends = fieller_interval(after, before)
        if ends is None:
            raise UndecidableError(f"the seeds do not show that '{self.before}' breaks", by_seed)
        low, high = 1 - ends[1], 1 - ends[0]
        method = Method(FIELLER, len(pairs), SEEDS)
        tails = student_tails(lambda bound: (1 - bound) * before - after)
        return Estimate(value, low, high, method, self.words(panel), by_seed, tails)

    def describe(self, panel: PanelTables) -> str:
        other = panel.label(self.restarted) if self.restarted else "the same model"
        ratio = f"perplexity / that of {other} after a restart T/2 to T tokens before, {self.where()}"
        names = f"{panel.label(self.arm)}) / (log ratio of {panel.label(self.before)}"
        pooled = "; both logarithms are means over seeds" if self.pooled else ""
        return f"share of the break that is repaired, 1 - (log ratio of {names}); ratio: {ratio}{pooled}"


def fieller_interval(over: np.ndarray, under: np.ndarray) -> tuple[float, float] | None:
    """The 95% interval of a ratio of two true means, from pairs: the ratios r that a t test of over - r under keeps.

    Args:
        over, under: (n,), n >= 2.

    Returns:
        None if the mean of `under` is not certainly above 0: the interval then has no end.
    """
    t = float(special.stdtrit(len(over) - 1, (1 + LEVEL) / 2))
    spread = t**2 / len(over) * np.cov(over, under)  # (2, 2)
    a = float(under.mean() ** 2 - spread[1, 1])
    b = float(over.mean() * under.mean() - spread[0, 1])
    c = float(over.mean() ** 2 - spread[0, 0])
    if a <= 0 or under.mean() <= 0:
        return None
    half = math.sqrt(max(0.0, b * b - a * c))
    return (b - half) / a, (b + half) / a
