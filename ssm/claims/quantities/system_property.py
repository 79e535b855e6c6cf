"""A property of a recurrence, measured on its module."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import ModelQuantity

PROPERTIES = {
    "selective": "the effect of an initial state depends on the input",
    "linear": "the effect of an initial state is proportional to it",
    "identity": "an initial state stays unchanged for every input (A_t = I)",
    "constant": "the size of the state does not grow with the number of tokens",
}


class SystemProperty(ModelQuantity):
    """A property of the recurrence of one model, measured on its module: 1 if the model has it, 0 if not."""

    kind: Literal["system_property"] = "system_property"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)
    definition: ClassVar[bool] = True
    # selective: the effect of an initial state depends on the input. linear: it is proportional to that state.
    # identity: the initial state stays unchanged (A_t = I). constant: the size of the state does not grow.
    property: Literal["selective", "linear", "identity", "constant"]

    def estimate(self, panel: PanelTables) -> Estimate:
        row = self.rows(panel).row(0, named=True)
        if self.property == "constant":
            return self.exact(float(row["state_numbers_late"] == row["state_numbers"]), panel)
        if row[self.property] is None:
            model = panel.task.title_of(self.model)
            raise UndecidableError(f"the state of {model} grows, so nothing of an initial state is lost")
        return self.exact(float(row[self.property]), panel)

    def words(self, panel: PanelTables) -> str:
        return f"1 if {PROPERTIES[self.property]}, else 0; measured on {panel.task.title_of(self.model)}"
