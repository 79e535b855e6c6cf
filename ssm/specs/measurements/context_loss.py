"""The spec of the loss by the number of tokens read before."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfWindows
from ssm.specs.training import RunSpec


class ContextLoss(OfWindows):
    """The loss on the same targets when the model restarts n to 2n tokens before them.

    n is `shortest` and doubles up to L/2. The model then restarts L/2 to 3/4 L tokens before. L is the largest power of
    two up to `length`. The targets are the last quarter of the first L tokens of a window. Exactly n tokens before each
    target would take n times as long.
    """

    table: ClassVar[Schema] = Schema(
        "context_loss",
        "one sequence, one context: the mean loss on the same targets when the model restarts this far before them",
        {
            "sequence": int,
            "context": int,  # n: more than n and at most 2n tokens are read before a prediction
            "loss": float,
        },
        keys=("sequence", "context"),
        sample="sequence",
    )
    kind: Literal["context_loss"] = "context_loss"
    sequences: ReadCount = 16
    seed: int = 5  # chooses the windows, as for position_loss
    shortest: PositiveInt = 1  # the smallest n, a power of two

    @model_validator(mode="after")
    def _contexts_fit(self) -> ContextLoss:
        if self.shortest & (self.shortest - 1):
            raise ValueError(f"shortest: expected a power of two, got {self.shortest}")
        if self.end < 4 * self.shortest:
            raise ValueError(f"length {self.length}: expected at least 4 times the shortest context, {self.shortest}")
        return self

    @property
    def end(self) -> int:
        """L."""
        return 1 << (self.length.bit_length() - 1)

    @property
    def contexts(self) -> list[int]:
        """Every n."""
        return [1 << power for power in range(self.shortest.bit_length() - 1, self.end.bit_length() - 1)]

    def block(self, context: int) -> int:
        """Number of targets after each restart: as many as the context, or all."""
        return min(context, self.end // 4)

    @property
    def tokens(self) -> int:
        """Tokens that are read for a window."""
        quarter = self.end // 4
        return sum(quarter // self.block(n) * (n + self.block(n)) for n in self.contexts)

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.sequences * self.tokens, self.end // 2 + self.end // 4

    def capped(self, caps: DryRun, context: int) -> ContextLoss:
        least: dict[str, Any] = {"length": max(4 * self.shortest, min(self.length, caps.max_contexts * context))}
        return self.model_copy(update=least | {"sequences": min(self.sequences, caps.max_sequences)})
