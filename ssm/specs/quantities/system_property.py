"""The spec of a property of a recurrence."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.quantities.base import ModelQuantity


class SystemProperty(ModelQuantity):
    """A property of one named model's recurrence as measured on its module: 1 if it has it, 0 if not.

    selective: what remains of an initial state depends on the input. linear: it is proportional to that state.
    identity: it is that state, whole (A_t = I). constant: the state is as large after many tokens as after one.
    """

    kind: Literal["system_property"] = "system_property"
    reads: ClassVar[tuple[str, ...]] = ("taxonomy",)
    definition: ClassVar[bool] = True
    property: Literal["selective", "linear", "identity", "constant"]
