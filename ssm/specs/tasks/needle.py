"""The spec of needles: a statement that is false in the world, told in a long text and asked for at its end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import Distinct
from ssm.specs.corpora import CorpusSpec
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.passkey import PasskeyPart
from ssm.specs.tasks.spelled import SpelledTask

Relation = Literal["capital", "currency", "colour", "inventor", "author", "young"]
RELATIONS: tuple[Relation, ...] = ("capital", "currency", "colour", "inventor", "author", "young")
ALTERNATIVES = 4  # wrong answers that the right one is compared with
LONGEST = 13  # bytes of the longest answer, with the space before it and the full stop


class NeedlePart(PasskeyPart):
    """Prompts of one length, their statements' depths even over a range, about some of the relations."""

    relations: Annotated[tuple[Relation, ...], Field(strict=False, min_length=1), Distinct] = RELATIONS  # evenly


class NeedleTask(SpelledTask):
    """A needle in a haystack with an error of fact (bn Section 3.2, Appendix E.2; after Kamradt 2023).

    "The capital of France is Madrid." stands between two sentences of `corpus`, and behind the text the question asks
    for the capital of France. What is right stands in the text alone: the object is any of its relation's but the true
    one (of colours: but what is commonly said). Asked and scored are the object and the full stop behind it; the
    alternatives that it is compared with are others of the same relation, the true one first. Lengths are in tokens of
    the prompt and the longest answer; the difficulty is the statement's depth in the text.
    """

    task: Literal["needle"] = "needle"
    corpus: CorpusSpec
    mix: Mix[NeedlePart]
    instruction: bool = True  # the paper's: the context counts, and not the facts
    alternatives: Annotated[PositiveInt, Field(le=10)] = ALTERNATIVES  # the fact of the world, and others

    @property
    def longest_answer(self) -> int:
        return LONGEST

    @property
    def candidates(self) -> int:
        return 1 + self.alternatives

    @property
    def groups(self) -> tuple[str, ...]:
        return RELATIONS
