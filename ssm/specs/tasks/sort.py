"""The spec of sorting: letters are read in any order and have to be written in that of their numbers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ssm.specs.tasks.strings import StringTask


class SortTask(StringTask):
    """$ letters | letters, ascending . (mi Section 4: drawn without replacement from 512). No letter occurs twice."""

    task: Literal["sort"] = "sort"
    alphabet: Annotated[int, Field(ge=1, le=2**20)] = 512

    @model_validator(mode="after")
    def _letters_to_draw(self) -> Self:
        if self.longest_answer > self.alphabet:
            raise ValueError(f"alphabet {self.alphabet}: {self.longest_answer} different letters are needed")
        return self
