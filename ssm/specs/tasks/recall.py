"""The spec of recall: keys and values are read in pairs, and later some keys ask for their values."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.tasks.base import Mix, Part, Task


class RecallPart(Part):
    """Sequences of one length, with so many pairs."""

    length: PositiveInt  # tokens of the sequence
    pairs: PositiveInt

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.length % 2 or self.length < 4 * self.pairs:
            raise ValueError(
                f"length {self.length}: an even number is needed, and at least {4 * self.pairs} for {self.pairs} pairs"
            )
        return self

    def at(self, length: int) -> Self:
        return self.model_copy(update={"length": length})


class RecallTask(Task):
    """Multi-query associative recall (MQAR; Arora et al. 2023, "Zoology", Section 3; bn Appendix E.5.2).

    Token 0 fills; of the others the lower half of the vocabulary are keys and the upper half values. A sequence begins
    with its pairs, a key and its value each, and no key or value twice. Behind them every key is asked once, at random
    at one of the even places; the rest is filled. The target of an asked key is its value, which the sequence does not
    show again. Lengths are in tokens of the sequence; the difficulty is the pairs of a key and a value.
    """

    task: Literal["recall"] = "recall"
    mix: Mix[RecallPart]
    vocabulary: Annotated[int, Field(ge=4, le=2**20, multiple_of=2)] = 8192
    # a: a key is asked at the i-th place with a probability as i^(a - 1); 1: at any, near 0: mostly near the pairs.
    power: Annotated[PositiveFloat, Field(le=1)] = 0.01

    @model_validator(mode="after")
    def _enough_keys(self) -> Self:
        most = max(part.pairs for part in self.mix)
        if most > self.keys:
            raise ValueError(f"vocabulary {self.vocabulary} has {self.keys} keys, {most} pairs need {2 * most + 2}")
        return self

    @property
    def keys(self) -> int:
        """How many keys there are: 1, 2, ..."""
        return self.vocabulary // 2 - 1

    @property
    def vocab_size(self) -> int:
        return self.vocabulary

    @property
    def least_context(self) -> int:
        return max(part.length for part in self.mix)

    @property
    def groups(self) -> tuple[str, ...]:
        """By the distance from a key to where it is asked, in quarters of the sequence's length."""
        return ("nearest", "near", "far", "farthest")

    @property
    def longest_answer(self) -> int:
        return 1
