"""Counted parameters / published parameters."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity


class ParameterRatio(ModelQuantity):
    """The number of parameters of one model, divided by the number that the paper states."""

    kind: Literal["parameter_ratio"] = "parameter_ratio"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)
    definition: ClassVar[bool] = True

    def estimate(self, panel: PanelTables) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if not row["published_parameters"]:
            raise UndecidableError(f"the paper states no number of parameters for {panel.task.title_of(self.model)}")
        return self.exact(row["parameters"] / row["published_parameters"], panel)

    def words(self, panel: PanelTables) -> str:
        return f"parameters of {panel.task.title_of(self.model)}, counted / stated by the paper"
