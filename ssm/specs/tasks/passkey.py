"""The spec of passkey retrieval as a task: for fine-tuning, and for test sets at any length."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

Depth = Annotated[float, Field(ge=0, le=1)]  # of a key in a text: 0 its start, 1 its end


class PasskeyPart(PromptPart):
    """Prompts of one length, their keys' depths even over a range."""

    depths: Annotated[tuple[Depth, Depth], Field(strict=False)] = (0.0, 1.0)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.depths[0] > self.depths[1]:
            raise ValueError(f"depths must ascend, got {list(self.depths)}")
        return self


class PasskeyTask(SpelledTask):
    """lg Section 5.2 and Appendix B.4: the loss is on the key alone, at a random depth, and on the full stop behind it.

    The paper puts the full stop there so that a model ends the key; scored is the key. Lengths are in tokens of the
    prompt and the key; the difficulty is the key's depth in the text.
    """

    task: Literal["passkey"] = "passkey"
    mix: Mix[PasskeyPart]
    digits: Annotated[int, Field(ge=1, le=18)] = 5  # of a key

    @property
    def longest_answer(self) -> int:
        return self.digits + 1

    @property
    def groups(self) -> tuple[str, ...]:
        return ("passkey",)
