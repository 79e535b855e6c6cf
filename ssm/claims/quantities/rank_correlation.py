"""Whether two numbers rank the models of a figure in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ssm.base.lazy import stats
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import PanelArm, SeedQuantity
from ssm.claims.reader import Reader
from ssm.claims.series import Series
from ssm.claims.sweep import SOME, Of, content_without_arms, quantity_of
from ssm.specs.base import Name

FEWEST = 3  # models: two are always in the same or in the opposite order


class RankCorrelation(SeedQuantity):
    """Spearman's rank correlation of the quantities `x` and `y` over all models of the figure, one number per seed.

    1: both rank the models in the same order. The interval is over seeds. It holds for these models, not for others.
    """

    kind: Literal["rank_correlation"] = "rank_correlation"
    reads: ClassVar[tuple[str, ...]] = ()  # any measurement
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    arm: Name  # the arm that is measured
    x: Of  # a quantity, without its key `arm`
    y: Of  # another one

    def quantities(self, arm: str = SOME) -> tuple[SeedQuantity, SeedQuantity]:
        """`x` and `y` of an arm."""
        return quantity_of(self.x, arm), quantity_of(self.y, arm)

    @property
    def measurement_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.quantities() for name in one.measurement_names))

    def nested_readers(self) -> dict[str, Reader]:
        return dict(zip("xy", self.quantities(), strict=True))

    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(arm for one in self.quantities(self.arm) for arm in one.arms()))

    def about(self, series: Series) -> bool:
        """No panel has a verdict of its own: the number belongs to all of them."""
        return False

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        places = (
            place
            for model in _models(series, self.arm)
            for one in self.quantities(self.arm)
            for place in one.panel_arms(model, series)
        )
        return tuple(dict.fromkeys(places))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        order, models = self.panel_arms(panel, series), _models(series, self.arm)
        x, y = (
            {
                "of": content_without_arms(one, panel, series),
                "arms": [[order.index(place) for place in one.panel_arms(model, series)] for model in models],
            }
            for one in self.quantities(self.arm)
        )
        return {"kind": self.kind, "x": x, "y": y}

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        models = _models(panel.task.series, self.arm)
        if len(models) < FEWEST:
            raise UndecidableError(f"{len(models)} models have the arm '{self.arm}' at this scale; {FEWEST} are needed")
        x, y = ([one.readings(panel.of(model)) for model in models] for one in self.quantities(self.arm))
        seeds = sorted(set.intersection(*(set(readings) for readings in (*x, *y))))
        if not seeds:
            raise UndecidableError("the models share no seed")
        return {
            seed: Reading(rank_correlation(*(np.array([one[seed].value for one in part]) for part in (x, y))))
            for seed in seeds
        }

    def words(self, panel: PanelTables) -> str:
        x, y = (one.words(panel) for one in self.quantities(self.arm))
        count = len(_models(panel.task.series, self.arm))
        return f"Spearman's rank correlation over {count} models between: {x}; and: {y}"


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation; NaN if a number is not finite, or if all numbers of x or of y are equal.

    Args:
        x: (M,).
        y: (M,).
    """
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def _models(series: Sequence[Series], arm: str) -> list[str]:
    """The panels that have an arm."""
    return list(dict.fromkeys(one.panel for one in series if one.arm == arm))
