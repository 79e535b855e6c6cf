"""The spec of facts: questions about a story whose sentences are hidden in a long text."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.base import Distinct
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Sources
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

Question = Literal["qa1", "qa2", "qa3", "qa4", "qa5", "qa6", "qa7", "qa8", "qa9", "qa10"]
# Smallest and largest number of sentences in a generated story. BABILong's README counts these in the stories of bAbI.
FACTS: dict[str, tuple[int, int]] = {
    "qa1": (2, 10),  # one supporting fact: where a person is
    "qa2": (2, 68),  # two facts: where an object is
    "qa3": (4, 32),  # three facts: where an object was before
    "qa4": (2, 2),  # two arguments: what is north of the kitchen
    "qa5": (2, 126),  # three arguments: who gave what to whom
    "qa6": (2, 26),  # yes or no
    "qa7": (2, 52),  # counting
    "qa8": (2, 50),  # lists
    "qa9": (2, 10),  # negation
    "qa10": (2, 10),  # indefinite knowledge
}
# Fewest sentences of a generated story from which the answer follows; one for the other questions.
FEWEST: dict[str, int] = {"qa2": 2, "qa3": 3, "qa5": 2}
LONGEST = 21  # bytes of the longest generated answer with its full stop
# BABILong's files -> the numbers of tokens that they stand for: "4k" for 4,000 to 4,097 (a context of 4,096 and one
# target more), "0k" for the story alone.
PUBLISHED: dict[str, range] = {
    "0k": range(1000),
    **{f"{2**n}k": range(1000 * 2**n, 1024 * 2**n + 2) for n in range(10)},
    **{f"{n}M": range(n * 1000**2, n * 1024**2 + 2) for n in (1, 10)},
}


class FactsPart(PromptPart):
    """Prompts of one length about some of the questions."""

    # questions of bAbI to ask, all equally likely
    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1), Distinct] = ("qa1",)
    # Smallest and largest number of sentences in a story; by default as in bAbI. A question that needs more than the
    # smallest number takes at least what it needs: qa3 three sentences, qa2 and qa5 two.
    facts: Annotated[tuple[PositiveInt, PositiveInt], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.facts is not None and self.facts[0] > self.facts[1]:
            raise ValueError(f"facts must ascend, got {list(self.facts)}")
        return self

    def sentences(self, question: str) -> tuple[int, int]:
        """Smallest and largest number of sentences in a generated story with this question."""
        low, high = self.facts or FACTS[question]
        return max(low, FEWEST.get(question, 1)), high


class FactsTask(SpelledTask):
    """Questions about stories like those of bAbI's first ten tasks (Weston et al. 2015), hidden as in BABILong.

    Sentences of `corpus` fill the prompt. The sentences of the story are placed between them in their order, all places
    equally likely (Kuratov et al. 2024; the ten tasks are those of lg Figure 6). Without a corpus, the prompt has only
    the story. The loss and the score are on the answer and its full stop.

    Stories are generated, or read from the files of bAbI or BABILong. Lengths are in tokens of the prompt and the
    longest answer. The difficulty is the number of sentences in the story.
    """

    longest_answer: ClassVar[int] = LONGEST
    groups: ClassVar[tuple[str, ...]] = tuple(FACTS)
    task: Literal["facts"] = "facts"
    mix: Mix[FactsPart]
    shots: NonNegativeInt = 0  # number of short example stories with answers before the prompt
    least_sentence: PositiveInt = 10  # leave out sentences of the text with fewer tokens, as in BABILong
    babi: str | None = None  # folder with the files of bAbI, such as tasks_1-20_v1-2/en-10k
    babilong: str | None = None  # folder with the prompts of BABILong (qa1/0k.json ...), which are only test sets

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.babilong is not None and self.shots:
            raise ValueError("babilong: the published prompts come without shots")
        return self

    @model_validator(mode="after")
    def _stories_exist(self) -> Self:
        for part in self.mix if self.babi is None else ():
            for question in part.questions:
                low, high = part.sentences(question)
                if low > high:
                    raise ValueError(f"facts {list(part.facts or ())}: a story with {question} needs {low} sentences")
        return self

    def tested(self) -> Self:
        for part in self.mix if self.babilong is not None else ():
            published_name(part.length)
        return self

    @property
    def sources(self) -> Sources:
        own = super().sources
        folders = [folder for folder in (self.babi, self.babilong) if folder is not None]
        return Sources(
            corpora=(*own.corpora, *(FilesCorpus(paths=(folder,), format="text") for folder in folders)),
            tokenizers=own.tokenizers,
            library=own.library,
        )


def published_name(length: int) -> str:
    """The name of BABILong's files with prompts of this length, in tokens of GPT-2.

    Raises:
        ConfigError: BABILong has no prompts of this length.
    """
    for name, lengths in PUBLISHED.items():
        if length in lengths:
            return name
    raise ConfigError(f"length {length}: BABILong has prompts of {', '.join(PUBLISHED)}; 4k is 4,000 to 4,097 tokens")
