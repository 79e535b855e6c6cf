"""Perplexity with the full history / perplexity of a restarted model."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Reading
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ComparisonScale
from ssm.claims.restart import RestartQuantity
from ssm.claims.series import Series


class RestartRatio(RestartQuantity):
    """Perplexity with the full history, divided by that after a restart T/2 to T tokens before, on the same targets.

    `restarted` is the arm that is restarted. With the base this is Rbase; without, the arm itself is restarted (Rown).
    """

    kind: Literal["restart_ratio"] = "restart_ratio"
    read_on: ClassVar[ComparisonScale] = "logarithm"

    def read(self, panel: PanelTables, series: Series) -> Reading:
        return self.log_ratio(panel, series)

    def describe(self, panel: PanelTables) -> str:
        other = panel.label(self.restarted) if self.restarted else "the same model"
        ratio = f"perplexity of {panel.label(self.arm)} / of {other} after a restart T/2 to T tokens before"
        return f"{ratio}, at {self.where()}"
