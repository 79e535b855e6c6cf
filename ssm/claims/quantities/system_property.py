"""A property of a recurrence, measured on its module."""

from __future__ import annotations

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.base import ModelEstimator
from ssm.specs.quantities.system_property import SystemProperty

PROPERTIES = {
    "selective": "what remains of an initial state depends on the input",
    "linear": "what remains of an initial state is proportional to it",
    "identity": "an initial state remains as it is, whatever comes in (A_t = I)",
    "constant": "the state is as large after many tokens as after one",
}


class SystemPropertyEstimator(ModelEstimator[SystemProperty]):
    """Exact: 1 or 0."""

    def estimate(self, panel: Panel) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if self.spec.property == "constant":
            return self.exact(float(row["state_numbers_late"] == row["state_numbers"]), panel)
        if row[self.spec.property] is None:
            raise UndecidableError(f"the state of {self.spec.model} grows, so that nothing of an initial state is lost")
        return self.exact(float(row[self.spec.property]), panel)

    def words(self, panel: Panel) -> str:
        return f"1 if {PROPERTIES[self.spec.property]}, else 0; measured on {self.spec.model}"
