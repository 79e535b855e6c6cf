"""The spec of the loss after a restart."""

from __future__ import annotations

from math import ceil
from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema, binned
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.training import RunSpec


def octaves(context: int, length: int) -> list[int]:
    """k = 1, 2, 4, ... with k * context <= length."""
    return [2**power for power in range((length // context).bit_length())]


class RestartLoss(OfWindows):
    """The loss on the targets of position_loss when the model restarts T/2 to T tokens before each of them.

    The targets are those of the paired ratio: the last quarter [3/4 kT, kT) for k = 1, 2, 4 ... up to `length`. With
    `everywhere`, they are all targets from T/2 on, in the bins of position_loss.
    """

    table: ClassVar[Schema] = binned(
        "restart_loss",
        "one sequence, one bin: the loss on the same targets when the model restarts T/2 to T tokens before each",
        "loss",
    )
    from_plan: ClassVar[frozenset[str]] = frozenset({"context"})
    from_outside: ClassVar[bool] = True
    kind: Literal["restart_loss"] = "restart_loss"
    sequences: ReadCount = 64  # number of windows; as for position_loss, which is compared window by window
    seed: int = 5
    context: PositiveInt  # T
    everywhere: bool = False  # measure all targets from T/2 on

    @model_validator(mode="after")
    def _power_of_two(self) -> RestartLoss:
        if self.context < 4 or self.context & (self.context - 1):
            raise ValueError(f"the paired ratio needs a context that is a power of two, at least 4, got {self.context}")
        return self

    def read(self, run: RunSpec) -> tuple[float, int]:
        if self.everywhere:
            windows = max(0, ceil(2 * self.length / self.context) - 1)
            return self.sequences * windows * self.context, self.context
        windows = 1 + sum(k // 2 for k in octaves(self.context, self.length))
        return self.sequences * windows * self.context, self.context
