"""The spec of sorting."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.tasks.strings import StringTask


class SortTask(StringTask):
    """Sort different letters: `$ letters | letters in ascending order .` (mi Section 4: drawn from 512).

    Lengths are in letters of the string.
    """

    task: Literal["sort"] = "sort"
    alphabet: Annotated[int, Field(ge=1, le=2**20)] = 512  # number of different letters

    @model_validator(mode="after")
    def _letters_to_draw(self) -> Self:
        if self.longest_answer > self.alphabet:
            raise ValueError(f"alphabet {self.alphabet}: {self.longest_answer} different letters are needed")
        return self
