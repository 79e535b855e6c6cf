"""Parameters counted over parameters published."""

from __future__ import annotations

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.base import ModelEstimator
from ssm.specs.quantities.parameter_ratio import ParameterRatio


class ParameterRatioEstimator(ModelEstimator[ParameterRatio]):
    """Exact."""

    def estimate(self, panel: Panel) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if not row["published_parameters"]:
            raise UndecidableError(f"no published number of parameters is known for {self.spec.model}")
        return self.exact(row["parameters"] / row["published_parameters"], panel)

    def words(self, panel: Panel) -> str:
        return f"parameters of {self.spec.model} counted here / parameters that the paper states"
