"""The spec of passkey retrieval."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from ssm.base.counting import counted
from ssm.base.errors import ConfigError
from ssm.base.schema import Schema
from ssm.specs.base import Ascending
from ssm.specs.config import DryRun
from ssm.specs.data import BytesTokenizer
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRun
from ssm.specs.tasks.passkey import Depth, least_bytes
from ssm.specs.training import RunSpec


class Passkey(OfRun):
    """Retrieval of a key that is hidden in a text of repeated sentences (lg Section 5.2, Figure 8)."""

    table: ClassVar[Schema] = Schema(
        "passkey",
        "one length, one depth, one trial: a key in a long text, with a question at its end",
        {
            "length": int,  # tokens of the prompt and the key after it
            "depth": float,  # of the key in the text: 0 is its start, 1 its end
            "trial": int,  # 0, 1, ...: other digits, and a text that begins elsewhere
            "correct": bool,  # whether greedy decoding writes the key
            "digits_right": int,  # digits before the first wrong token
        },
        keys=("length", "depth", "trial"),
        sample="trial",
    )
    in_contexts: ClassVar[str | None] = "lengths"
    later: ClassVar[frozenset[str]] = frozenset({"instruction"})
    kind: Literal["passkey"] = "passkey"
    # tokens of prompt and key, in ascending order
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Ascending]
    # places of the key in the text, from 0 (start) to 1 (end), in ascending order
    depths: Annotated[tuple[Depth, ...], Field(strict=False, min_length=1), Ascending] = (0.0, 0.25, 0.5, 0.75, 1.0)
    trials: PositiveInt = 8  # number of keys for each length and depth
    digits: Annotated[int, Field(ge=1, le=18)] = 5  # digits of a key
    instruction: bool = True  # begin with the instruction to find the key
    seed: int = 10  # chooses the keys, together with the seed of the run

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        measurement = super().planned(entry, arm, where)
        # The tokens of other tokenizers are not known before the text is tokenized.
        if isinstance(arm.run.data.spelled_by, BytesTokenizer):
            least = least_bytes(measurement.digits, measurement.instruction)
            if measurement.lengths[0] < least:
                raise ConfigError(
                    f"{where}: lengths: a passkey of {counted(measurement.digits, 'digit')} needs at least {least} "
                    f"bytes, got {measurement.lengths[0]}"
                )
        return measurement

    def read(self, run: RunSpec) -> tuple[float, int]:
        return len(self.depths) * self.trials * sum(self.lengths), self.lengths[-1]

    def capped(self, caps: DryRun, context: int) -> Self:
        """Keep the lengths within the cap, and always the shortest, because prompts have a minimum length."""
        fewer = tuple(length for length in self.lengths if length <= caps.max_contexts * context)
        trials = min(self.trials, caps.max_sequences)
        return self.model_copy(update={"lengths": fewer or self.lengths[:1], "trials": trials})
