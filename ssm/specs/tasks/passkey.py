"""The spec of passkey retrieval as a task, for fine-tuning and for test sets of any length."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ssm.base.counting import counted
from ssm.specs.data import BytesTokenizer
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

INSTRUCTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will quiz you "
    "about the important information there."
)
NEEDLE = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"

Depth = Annotated[float, Field(ge=0, le=1)]  # place in a text: 0 is its start, 1 its end


class PasskeyPart(PromptPart):
    """Prompts of one length, with depths from a range."""

    # Smallest and largest depth in the text, from 0 (start) to 1 (end). Depths between are equally likely.
    depths: Annotated[tuple[Depth, Depth], Field(strict=False)] = (0.0, 1.0)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.depths[0] > self.depths[1]:
            raise ValueError(f"depths must ascend, got {list(self.depths)}")
        return self


class PasskeyTask(SpelledTask):
    """Repeat a key that is hidden at a random depth in a text (lg Section 5.2 and Appendix B.4).

    The loss is on the key and on a full stop, with which the model ends the key. The score is on the key. Lengths are
    in tokens of the prompt and the key. The difficulty is the depth of the key in the text.
    """

    later: ClassVar[frozenset[str]] = frozenset({"instruction"})
    groups: ClassVar[tuple[str, ...]] = ("passkey",)
    task: Literal["passkey"] = "passkey"
    mix: Mix[PasskeyPart]
    digits: Annotated[int, Field(ge=1, le=18)] = 5  # digits of a key
    instruction: bool = True  # begin with the instruction to find the key; a short prompt has little room for it

    @model_validator(mode="after")
    def _prompts_have_room(self) -> Self:
        if isinstance(self.tokenizer, BytesTokenizer):  # tokens of others are not known before the text is tokenized
            least = least_bytes(self.digits, self.instruction) + len(".")
            shortest = min(part.length for part in self.mix)
            if shortest < least:
                key = f"a passkey of {counted(self.digits, 'digit')} and its full stop"
                raise ValueError(f"length {shortest}: {key} need at least {least} bytes")
        return self

    @property
    def longest_answer(self) -> int:
        return self.digits + 1


def least_bytes(digits: int, instruction: bool) -> int:
    """Bytes of the shortest prompt and its key, which has no repeated text.

    A space precedes the needle, the question and the key. In training, a full stop follows the key as well.
    """
    needle = NEEDLE.format(key="0" * digits)
    return len(INSTRUCTION) * instruction + 1 + len(needle) + 1 + len(QUESTION) + 1 + digits
