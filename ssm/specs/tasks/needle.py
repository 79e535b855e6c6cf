"""The spec of needles: a false statement in a long text, and a question about it at the end."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import Distinct
from ssm.specs.corpora import CorpusSpec
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.passkey import PasskeyPart
from ssm.specs.tasks.spelled import SpelledTask

Relation = Literal["capital", "currency", "colour", "inventor", "author", "young"]
RELATIONS: tuple[Relation, ...] = ("capital", "currency", "colour", "inventor", "author", "young")
ALTERNATIVES = 4  # wrong answers to compare with the right one
LONGEST = 13  # bytes of the longest answer with the space before it and the full stop


class NeedlePart(PasskeyPart):
    """Prompts of one length about some of the relations."""

    # relations of the statements, all equally likely
    relations: Annotated[tuple[Relation, ...], Field(strict=False, min_length=1), Distinct] = RELATIONS


class NeedleTask(SpelledTask):
    """A needle in a haystack with a false fact (bn Section 3.2, Appendix E.2; after Kamradt 2023).

    Example: "The capital of France is Madrid." is placed between two sentences of `corpus`. After the text, a question
    asks for the capital of France. Only the text has the answer, because the object is never the true one (for colors:
    never the usual one). The loss and the score are on the object and its full stop. The alternatives are other objects
    of the same relation, the true one first. Lengths are in tokens of the prompt and the longest answer. The difficulty
    is the depth of the statement in the text.
    """

    longest_answer: ClassVar[int] = LONGEST
    groups: ClassVar[tuple[str, ...]] = RELATIONS
    task: Literal["needle"] = "needle"
    corpus: CorpusSpec  # text around the statement, and for training a BPE tokenizer
    mix: Mix[NeedlePart]
    instruction: bool = True  # before the question: the paper's instruction to answer from the context
    alternatives: Annotated[PositiveInt, Field(le=10)] = ALTERNATIVES  # number of wrong answers to compare

    @property
    def candidates(self) -> int:
        return 1 + self.alternatives
