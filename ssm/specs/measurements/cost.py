"""The spec of time and memory of a step."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from ssm.base.schema import Schema
from ssm.specs.base import Ascending
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfModels, Work
from ssm.specs.training import RunSpec

STEP = 3  # duration of a training step, in forward passes


class Cost(OfModels):
    """Time and memory of a training step and of a decoding step by length (ls Table 1)."""

    table: ClassVar[Schema] = Schema(
        "cost",
        "the cost of one step of a model at one length",
        {
            "model": str,
            "mixer": str,
            "length": int,  # T
            "cost": str,  # training_step, decoding_step: seconds; training_memory, state: bytes
            "repeat": int,  # 1, 2, ...; bytes are counted once
            "value": float,
        },
        keys=("model", "mixer", "length", "cost", "repeat"),
        sample="repeat",
    )
    kind: Literal["cost"] = "cost"
    vocab_size: PositiveInt
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=2), Ascending]  # T, in ascending order
    repeats: PositiveInt = 5  # number of timings
    seed: int = 9  # of initialization and tokens

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """A training step, and the tokens before the decoding steps, which take as long as another training step."""
        return tuple(
            Work(model, self.vocab_size, self.repeats * (STEP + 1) * length, length, passes=self.repeats * 2 * STEP)
            for model in self.models
            for length in self.lengths
        )

    def capped(self, caps: DryRun) -> Self:
        return self.model_copy(update={"lengths": self.lengths[:2]})
