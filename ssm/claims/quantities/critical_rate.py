"""The learning rate from which on training is unstable."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.claims.curve import CurveQuantity, Points
from ssm.claims.estimate import Estimate, summarize
from ssm.claims.panel_tables import PanelTables

UNSTABLE = 0.5  # runs are 0 or 1


class CriticalRate(CurveQuantity):
    """The smallest number of a sweep, such as a learning rate, at which a run is unstable.

    The swept quantity is 1 for an unstable run and 0 for a stable one: `{kind: instability, what: spiked}`. A run that
    is stable at every number is censored: its critical rate is above the largest number. It counts as the number that
    would follow on a logarithmic scale. A run that is unstable at the smallest number counts as this number, which is
    an upper bound. So the mean over seeds, of logarithms, is a restricted mean. Two families are compared by the ratio.
    A verdict never rests on the side on which a seed has only a bound.
    """

    kind: Literal["critical_rate"] = "critical_rate"
    logarithmic: ClassVar[bool] = True

    @model_validator(mode="after")
    def _of_a_sweep(self) -> Self:
        if self.sweep is None:
            raise ValueError("give 'sweep', the instability of arms that differ by a rate")
        return self

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        unstable = y >= UNSTABLE
        first = np.where(unstable.any(axis=1), x[unstable.argmax(axis=1)], following(x))
        return np.where(np.isfinite(y).all(axis=1), np.log(first), np.nan)

    def estimate(self, panel: PanelTables) -> Estimate:
        """If all seeds agree, the interval assumes the smallest and the largest possible number."""
        own = self.points(panel)
        x = next(iter(own.values())).x
        most = following(x) / float(x[0])
        limits = (1 / most, most) if self.compared else (float(x[0]), following(x))
        found = summarize(self.readings(panel), self.words(panel), True, limits, agreeing=True, rounding=self.rounding)
        others = self.points(panel, against=True) if self.compared else {}
        return replace(
            found,
            may_be_lower=any(map(_from_the_first, own.values())) or any(map(_never, others.values())),
            may_be_higher=any(map(_never, own.values())) or any(map(_from_the_first, others.values())),
        )

    def describe_number(self) -> str:
        return "smallest number with an unstable run, or the number after the largest one"


def _from_the_first(runs: Points) -> bool:
    """Whether the run at the smallest number is unstable, so that the critical rate may be smaller."""
    return bool(runs.y[0] >= UNSTABLE)


def _never(runs: Points) -> bool:
    """Whether the runs are stable at all numbers, so that the critical rate is larger."""
    return not (runs.y >= UNSTABLE).any()


def following(x: np.ndarray) -> float:
    """The number that would follow on a logarithmic scale.

    Args:
        x: (K,) ascending, K >= 2.
    """
    return float(x[-1] ** 2 / x[-2])
