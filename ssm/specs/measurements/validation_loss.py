"""The spec of the validation loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.training import RunSpec


class ValidationLoss(OfWindows):
    """The loss on held-out windows in blocks of T tokens, each read from the zero state.

    Arms with different contexts T, but the same `length` and `sequences`, have the same targets.
    """

    table: ClassVar[Schema] = Schema(
        "validation_loss",
        "one sequence: the mean loss of its tokens, read in blocks of T from the zero state",
        {"sequence": int, "loss": float},
        keys=("sequence",),
        sample="sequence",
    )
    from_plan: ClassVar[frozenset[str]] = frozenset({"context"})
    from_outside: ClassVar[bool] = True
    kind: Literal["validation_loss"] = "validation_loss"
    sequences: ReadCount = 64
    seed: int = 15
    context: PositiveInt  # T

    @model_validator(mode="after")
    def _whole_blocks(self) -> ValidationLoss:
        if self.length % self.context:
            raise ValueError(f"length {self.length}: expected a multiple of the context, {self.context}")
        return self

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.length, self.context
