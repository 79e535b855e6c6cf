"""The base class for tasks in which a string of letters is read and then written in some order."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ssm.specs.tasks.base import Mix, Part, Task

HELPER = True

SYMBOLS = 4  # tokens after the letters: $ before a string, | after it, . after its answer, * for padding


class StringPart(Part):
    """Strings with lengths from a range, all equally likely."""

    shortest: PositiveInt  # letters of the shortest string
    longest: PositiveInt  # letters of the longest string

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}")
        return self

    def at(self, length: int) -> Self:
        return self.model_copy(update={"shortest": length, "longest": length})


class StringTask(Task):
    """`$ string | answer .`, with the letters of the string in the answer (mi Section 2; Jelassi et al. 2024: tokens).

    The loss is on the letters of the answer and the full stop. The score is on the letters. Lengths are in letters of
    the string.
    """

    later: ClassVar[frozenset[str]] = frozenset({"first"})
    mix: Mix[StringPart]
    alphabet: Annotated[int, Field(ge=1, le=2**20)] = 26  # number of different letters, all equally likely
    # Tokens of a training sequence that is filled with strings and answers, as in Jelassi et al. The last string, which
    # is cut, has no loss. Without this key, each sequence has one string.
    packed: PositiveInt | None = None
    rows: PositiveInt | None = None  # V, rows of the embedding, if the model has more than the task needs
    # Token of the first letter, for models trained on text. In bytes, `a` is 97, and the symbols become { | } ~.
    first: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needed = self.first + self.alphabet + SYMBOLS
        if self.rows is not None and self.rows < needed:
            place = f" from token {self.first} on" if self.first else ""
            raise ValueError(f"rows {self.rows}: {self.alphabet} letters and {SYMBOLS} symbols{place} need {needed}")
        longest = max(part.longest for part in self.mix)
        if self.packed is not None and self.packed < 2 * longest + 3:
            raise ValueError(f"packed {self.packed}: a string of {longest} letters takes {2 * longest + 3} tokens")
        return self

    @property
    def vocab_size(self) -> int:
        return self.rows or self.first + self.alphabet + SYMBOLS

    @property
    def tokens(self) -> int:
        """Tokens of a sequence, its last target included."""
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
