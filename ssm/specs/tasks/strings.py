"""What the specs of tasks of strings share: letters are read, and have to be written in some order."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from ssm.specs.tasks.base import Mix, Part, Task

HELPER = True

SYMBOLS = 4  # behind the letters: $ before a string, | behind it, . behind its answer, * where nothing is any more


class StringPart(Part):
    """Strings whose lengths are even over a range."""

    shortest: PositiveInt  # letters
    longest: PositiveInt

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}")
        return self

    def at(self, length: int) -> Self:
        return self.model_copy(update={"shortest": length, "longest": length})


class StringTask(Task):
    """$ string | answer . with the letters of the string in the answer (mi Section 2; Jelassi et al. 2024: the tokens).

    Asked are the letters behind the bar and the full stop; scored are the letters, as there. Lengths are in letters of
    the string.
    """

    later: ClassVar[frozenset[str]] = frozenset({"first"})
    mix: Mix[StringPart]
    alphabet: Annotated[int, Field(ge=1, le=2**20)] = 26  # letters, each as likely as any other
    # Tokens of a sequence that is filled with strings and their answers, one behind another; the last, which is cut, is
    # not asked for. So Jelassi et al. train. None: a sequence has one string.
    packed: PositiveInt | None = None
    rows: PositiveInt | None = None  # of the embedding, where a model has more than there are tokens
    # The token of the first letter, where a model has read text: a in bytes is 97, and { | } ~ stand behind z.
    first: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needed = self.first + self.alphabet + SYMBOLS
        if self.rows is not None and self.rows < needed:
            behind = f" from token {self.first} on" if self.first else ""
            raise ValueError(f"rows {self.rows}: {self.alphabet} letters and {SYMBOLS} symbols{behind} need {needed}")
        longest = max(part.longest for part in self.mix)
        if self.packed is not None and self.packed < 2 * longest + 3:
            raise ValueError(f"packed {self.packed}: a string of {longest} letters takes {2 * longest + 3} tokens")
        return self

    @property
    def vocab_size(self) -> int:
        return self.rows or self.first + self.alphabet + SYMBOLS

    @property
    def tokens(self) -> int:
        """Of a sequence, its last target included."""
        return self.packed or 2 * max(part.longest for part in self.mix) + 3

    @property
    def least_context(self) -> int:
        return self.tokens - 1

    @property
    def groups(self) -> tuple[str, ...]:
        return (self.task,)

    @property
    def longest_answer(self) -> int:
        return max(part.longest for part in self.mix)

    def tested(self) -> Self:
        return self.model_copy(update={"packed": None})
