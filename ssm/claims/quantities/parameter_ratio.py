"""Parameters counted over parameters published."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity


class ParameterRatio(ModelQuantity):
    """Parameters counted here / parameters that the paper states, for one named model."""

    kind: Literal["parameter_ratio"] = "parameter_ratio"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)
    definition: ClassVar[bool] = True

    def estimate(self, panel: PanelTables) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if not row["published_parameters"]:
            raise UndecidableError(f"no published number of parameters is known for {self.model}")
        return self.exact(row["parameters"] / row["published_parameters"], panel)

    def words(self, panel: PanelTables) -> str:
        return f"parameters of {self.model} counted here / parameters that the paper states"
