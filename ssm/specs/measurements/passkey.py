"""Keys hidden in a text."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfRun
from ssm.specs.training import RunSpec

Depth = Annotated[float, Field(ge=0, le=1)]  # of a key in a text: 0 its start, 1 its end


class Passkey(OfRun):
    """A key hidden in a text of repeated sentences, asked for at its end (lg Section 5.2, Figure 8)."""

    table: ClassVar[Schema] = Schema(
        "passkey",
        "one length, one depth, one trial: a key read in a long text and asked for at its end",
        {
            "length": int,  # tokens of the prompt and the key that is asked for
            "depth": float,  # of the key in the text: 0 its start, 1 its end
            "trial": int,  # 0, 1, ...: other digits, and a text that begins elsewhere
            "correct": bool,  # every token of the key is the most probable one after those before it
            "digits_right": int,  # digits that are spelled before the first token that is not
        },
        keys=("length", "depth", "trial"),
        sample="trial",
    )
    in_contexts: ClassVar[str | None] = "lengths"
    kind: Literal["passkey"] = "passkey"
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]  # tokens, ascending: prompt and key
    depths: Annotated[tuple[Depth, ...], Field(strict=False, min_length=1)] = (0.0, 0.25, 0.5, 0.75, 1.0)  # ascending
    trials: PositiveInt = 8  # keys at each length and depth
    digits: Annotated[int, Field(ge=1, le=18)] = 5  # of a key
    seed: int = 10  # which keys, together with the run's own seed

    @model_validator(mode="after")
    def _ascending(self) -> Passkey:
        for name, values in (("lengths", self.lengths), ("depths", self.depths)):
            if list(values) != sorted(set(values)):
                raise ValueError(f"{name} must ascend, got {list(values)}")
        return self

    def read(self, run: RunSpec) -> tuple[float, int]:
        return len(self.depths) * self.trials * sum(self.lengths), self.lengths[-1]

    def capped(self, caps: DryRun, context: int) -> Self:
        """The lengths within the cap, and the shortest in any case: a prompt has a least length."""
        fewer = tuple(length for length in self.lengths if length <= caps.max_contexts * context)
        trials = min(self.trials, caps.max_sequences)
        return self.model_copy(update={"lengths": fewer or self.lengths[:1], "trials": trials})
