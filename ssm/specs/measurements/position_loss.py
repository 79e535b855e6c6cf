"""The spec of the loss by position."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema, binned
from ssm.specs.base import ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfWindows


class PositionLoss(OfWindows):
    """The loss by position of long held-out windows, read from the zero state (lg Def. 3.1). Positions are binned.

    With `shuffled`, windows exchange chunks of this size (ls figure 4). Each target keeps its chunk and its position,
    but the text before its chunk comes from other windows. So the losses with and without `shuffled` can be compared
    target by target, and only the context differs.
    """

    table: ClassVar[Schema] = binned(
        "position_loss",
        "one sequence, one bin of positions: the loss with the full history since the start of the sequence",
        "loss",
    )
    from_outside: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"shuffled"})
    kind: Literal["position_loss"] = "position_loss"
    sequences: ReadCount = 64  # number of windows; as for restart_loss, which is compared window by window
    seed: int = 5
    shuffled: PositiveInt | None = None  # tokens of a chunk; without it, windows are read as in the text

    @model_validator(mode="after")
    def _chunks_to_exchange(self) -> Self:
        if self.shuffled is not None and (self.shuffled >= self.length or self.sequences < 2):
            given = f"{self.sequences} windows of {self.length} tokens"
            raise ValueError(f"shuffled: {given} have no chunks of {self.shuffled} to exchange")
        return self

    def capped(self, caps: DryRun, context: int) -> Self:
        capped = super().capped(caps, context)
        if capped.shuffled is None:
            return capped
        return capped.model_copy(update={"shuffled": min(capped.shuffled, max(1, capped.length // 2))})
