"""A property of a recurrence, measured on its module."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity

PROPERTIES = {
    "selective": "what remains of an initial state depends on the input",
    "linear": "what remains of an initial state is proportional to it",
    "identity": "an initial state remains as it is, whatever comes in (A_t = I)",
    "constant": "the state is as large after many tokens as after one",
}


class SystemProperty(ModelQuantity):
    """A property of one named model's recurrence as measured on its module: 1 if it has it, 0 if not.

    selective: what remains of an initial state depends on the input. linear: it is proportional to that state.
    identity: it is that state, whole (A_t = I). constant: the state is as large after many tokens as after one.
    """

    kind: Literal["system_property"] = "system_property"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)
    definition: ClassVar[bool] = True
    property: Literal["selective", "linear", "identity", "constant"]

    def estimate(self, panel: PanelTables) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if self.property == "constant":
            return self.exact(float(row["state_numbers_late"] == row["state_numbers"]), panel)
        if row[self.property] is None:
            raise UndecidableError(f"the state of {self.model} grows, so that nothing of an initial state is lost")
        return self.exact(float(row[self.property]), panel)

    def words(self, panel: PanelTables) -> str:
        return f"1 if {PROPERTIES[self.property]}, else 0; measured on {self.model}"
