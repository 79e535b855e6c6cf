"""The loss by position."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema, binned
from ssm.specs.base import ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfWindows


class PositionLoss(OfWindows):
    """The loss at every position of long held-out windows, from the zero state (lg Def. 3.1), in bins.

    `shuffled` (ls figure 4): read so that no chunk of so many tokens follows the one that it follows in the text. The
    targets of a sequence stay where they are, with as much read before them; what was read before their own chunk is
    other windows' text. So the two ways of reading compare target by target, and differ in the context alone.
    """

    table: ClassVar[Schema] = binned(
        "position_loss",
        "one sequence, one bin of positions: the loss with the full history since the start of the sequence",
        "loss",
    )
    from_outside: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"shuffled"})
    kind: Literal["position_loss"] = "position_loss"
    sequences: ReadCount = 64  # as of restart_loss: they are compared window by window
    seed: int = 5
    shuffled: PositiveInt | None = None  # tokens a chunk; None: every window as it stands in the text

    @model_validator(mode="after")
    def _chunks_to_exchange(self) -> Self:
        if self.shuffled is not None and (self.shuffled >= self.length or self.sequences < 2):
            given = f"{self.sequences} windows of {self.length} tokens"
            raise ValueError(f"shuffled: {given} have no chunks of {self.shuffled} to exchange")
        return self

    def capped(self, caps: DryRun, context: int) -> Self:
        found = super().capped(caps, context)
        if found.shuffled is None:
            return found
        return found.model_copy(update={"shuffled": min(found.shuffled, max(1, found.length // 2))})
