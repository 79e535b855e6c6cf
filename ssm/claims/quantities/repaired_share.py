"""The share of a break that is repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ssm.claims.estimate import Reading, UndecidableError, resample
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import PanelArm, Scale
from ssm.claims.restart import RestartQuantity
from ssm.claims.series import Series


class RepairedShare(RestartQuantity):
    """The share of a break that is repaired: 1 - log R(after) / log R(before), where R is the `restart_ratio`.

    1: no break is left. 0: the arm breaks as much as the arm `before`. It is negative if the arm breaks more.
    """

    kind: Literal["repaired_share"] = "repaired_share"
    before: str  # the arm before the repair

    def arms(self) -> tuple[str, ...]:
        return (*super().arms(), self.before)

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        places = ((panel, self.before), (self.against_panel(panel), self.before))
        return tuple(dict.fromkeys((*super().panel_arms(panel), *places)))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        return super().canonical(panel) | {"before": self.panel_arms(panel).index((panel, self.before))}

    @property
    def read_on(self) -> Scale:
        return "plain"

    def read(self, panel: PanelTables, series: Series) -> Reading:
        """With one seed, the interval is a bootstrap over sequences.

        Raises:
            UndecidableError: the arm `before` does not break, or has no such seed.
        """
        broken = panel.of_seed(self.before, series.seed, "the arm")
        before, after = self.log_ratio(panel, broken), self.log_ratio(panel, series)
        if before.value <= 0:
            raise UndecidableError(f"seed {series.seed}: '{self.before}' does not break, so nothing can be repaired")
        pairs = np.stack([before.by_sequence, after.by_sequence], axis=1)  # (S, 2)
        (means,) = resample(pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = 1 - means[:, 1] / means[:, 0]
        return Reading(1 - after.value / before.value, draws=draws, sequences=before.sequences)

    def describe(self, panel: PanelTables) -> str:
        other = panel.label(self.restarted) if self.restarted else "the same model"
        ratio = f"perplexity / that of {other} after a restart T/2 to T tokens before, {self.where()}"
        names = f"{panel.label(self.arm)}) / (log ratio of {panel.label(self.before)}"
        return f"share of the break that is repaired, 1 - (log ratio of {names}); ratio: {ratio}"
