"""The learning rate from which on training is unstable."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.claims.curve import CurveQuantity
from ssm.claims.estimate import Estimate, summarize
from ssm.claims.panel_tables import PanelTables


class CriticalRate(CurveQuantity):
    """The smallest number of a sweep, such as a learning rate, at which a run is unstable.

    The swept quantity is 1 for an unstable run and 0 for a stable one: `{kind: instability, what: spiked}`. A run that
    is stable at every number is censored: its critical rate is above the largest number. It counts as the number that
    would follow on a logarithmic scale. A run that is unstable at the smallest number counts as this number, which is
    an upper bound. So the mean over seeds, of logarithms, is a restricted mean. Two families are compared by the ratio.
    """

    kind: Literal["critical_rate"] = "critical_rate"
    logarithmic: ClassVar[bool] = True

    @model_validator(mode="after")
    def _of_a_sweep(self) -> Self:
        if self.sweep is None:
            raise ValueError("give 'sweep', the instability of arms that differ by a rate")
        return self

    def number(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        unstable = y >= 0.5
        first = np.where(unstable.any(axis=1), x[unstable.argmax(axis=1)], following(x))
        return np.where(np.isfinite(y).all(axis=1), np.log(first), np.nan)

    def estimate(self, panel: PanelTables) -> Estimate:
        """If all seeds agree, the interval assumes the smallest and the largest possible number."""
        x = next(iter(self.points(panel).values())).x
        most = following(x) / float(x[0])
        limits = (1 / most, most) if self.compared else (float(x[0]), following(x))
        return summarize(self.readings(panel), self.words(panel), True, limits, agreeing=True, rounding=self.rounding)

    def describe_number(self) -> str:
        return "smallest number with an unstable run, or the number after the largest one"


def following(x: np.ndarray) -> float:
    """The number that would follow on a logarithmic scale.

    Args:
        x: (K,) ascending, K >= 2.
    """
    return float(x[-1] ** 2 / x[-2])
