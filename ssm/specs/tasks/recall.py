"""The spec of associative recall."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.tasks.base import Mix, Part, Task


class RecallPart(Part):
    """Sequences with one length and one number of pairs."""

    length: PositiveInt  # tokens of the sequence
    pairs: PositiveInt  # pairs of a key and its value

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

    A sequence begins with pairs of a key and a value. No key and no value occurs twice. After the pairs, each key is
    repeated once at a random even place, and its value is the target. Values do not appear again. Token 0 fills the
    rest. The lower half of the vocabulary are keys, the upper half values. Lengths are in tokens of the sequence. The
    difficulty is the number of pairs.
    """

    # by the distance between the two places of a key, in quarters of the sequence
    groups: ClassVar[tuple[str, ...]] = ("nearest", "near", "far", "farthest")
    longest_answer: ClassVar[int] = 1
    task: Literal["recall"] = "recall"
    mix: Mix[RecallPart]
    vocabulary: Annotated[int, Field(ge=4, le=2**20, multiple_of=2)] = 8192  # V, number of tokens
    # a: the probability that a key is repeated at the i-th place is proportional to i^(a - 1). With 1 all places are
    # equally likely; near 0 most are close to the pairs.
    power: Annotated[PositiveFloat, Field(le=1)] = 0.01

    @model_validator(mode="after")
    def _enough_keys(self) -> Self:
        most = max(part.pairs for part in self.mix)
        if most > self.keys:
            raise ValueError(f"vocabulary {self.vocabulary} has {self.keys} keys, {most} pairs need {2 * most + 2}")
        return self

    @property
    def keys(self) -> int:
        """Number of keys, which are the tokens 1, 2, ..."""
        return self.vocabulary // 2 - 1

    @property
    def vocab_size(self) -> int:
        return self.vocabulary

    @property
    def least_context(self) -> int:
        return max(part.length for part in self.mix)
