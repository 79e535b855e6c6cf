"""The spec of facts: a question about a story whose sentences are hidden in a long text."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ssm.specs.base import Distinct
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Sources
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

Question = Literal["qa1", "qa2", "qa3", "qa4", "qa5", "qa6", "qa7", "qa8", "qa9", "qa10"]
# Sentences of a story that is made here, as few and as many as BABILong counts in bAbI's (its README).
FACTS: dict[str, tuple[int, int]] = {
    "qa1": (2, 10),  # one supporting fact: where somebody is
    "qa2": (2, 68),  # two: where a thing is
    "qa3": (4, 32),  # three: where a thing was before
    "qa4": (2, 2),  # two arguments: what is north of the kitchen
    "qa5": (2, 126),  # three arguments: who gave what to whom
    "qa6": (2, 26),  # yes or no
    "qa7": (2, 52),  # counting
    "qa8": (2, 50),  # lists
    "qa9": (2, 10),  # negation
    "qa10": (2, 10),  # indefinite knowledge
}
LONGEST = 21  # bytes of the longest answer that is made here, with its full stop


class FactsPart(PromptPart):
    """Prompts of one length, about some of the questions."""

    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1), Distinct] = ("qa1",)  # evenly
    facts: Annotated[tuple[PositiveInt, PositiveInt], Field(strict=False)] | None = None  # a story's; None: see FACTS

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.facts is not None and self.facts[0] > self.facts[1]:
            raise ValueError(f"facts must ascend, got {list(self.facts)}")
        return self


class FactsTask(SpelledTask):
    """Stories in the manner of bAbI's first ten tasks (Weston et al. 2015), hidden by BABILong's rule.

    Sentences of `corpus` fill the prompt to its length, and the story's stand between them in their order, each place
    as likely as any other (Kuratov et al. 2024, whose first ten tasks are those of lg Figure 6). Without a corpus there
    is the story alone. Asked and scored are the answer and the full stop behind it.

    Stories are made here, or are bAbI's own, where the folder with its files is given; BABILong's published prompts are
    test sets. Lengths are in tokens of the prompt and the longest answer; the difficulty is the sentences of the story.
    """

    task: Literal["facts"] = "facts"
    mix: Mix[FactsPart]
    shots: NonNegativeInt = 0  # stories with their answers that precede, short ones, not hidden
    least_sentence: PositiveInt = 10  # tokens of a sentence of the text; BABILong leaves shorter ones out
    babi: str | None = None  # the folder of bAbI's files, such as tasks_1-20_v1-2/en-10k
    babilong: str | None = None  # the folder of BABILong's: qa1/0k.json ... of which test sets are made, and no others

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.babilong is not None and self.shots:
            raise ValueError("babilong: the published prompts come without shots")
        return self

    @property
    def longest_answer(self) -> int:
        return LONGEST

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(FACTS)

    @property
    def sources(self) -> Sources:
        own = super().sources
        folders = [folder for folder in (self.babi, self.babilong) if folder is not None]
        return Sources(
            corpora=(*own.corpora, *(FilesCorpus(paths=(folder,)) for folder in folders)),
            tokenizers=own.tokenizers,
            library=own.library,
        )
