"""What the specs of tasks in words share: the tokenizer that spells them, and text of their own where they need any."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.corpora import CorpusSpec
from ssm.specs.data import BpeTokenizer, BytesTokenizer, DataSpec, TokenizerSpec, rows_of
from ssm.specs.tasks.base import Mix, Part, Task

HELPER = True


class PromptPart(Part):
    """Prompts of one length."""

    length: PositiveInt  # tokens of the prompt and the longest answer, the full stop behind it included

    def at(self, length: int) -> Self:
        return self.model_copy(update={"length": length})


class SpelledTask(Task):
    """A task in the tokens of a tokenizer. To go on from a run on text it takes that text's own tokenizer."""

    mix: Mix[PromptPart]
    tokenizer: TokenizerSpec = BytesTokenizer()
    corpus: CorpusSpec | None = None  # text to train a BPE tokenizer on, and whatever the task does with it
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1  # of its documents: test sets read these, training the others
    held_out_seed: int = 1234
    max_documents: PositiveInt | None = None

    @model_validator(mode="after")
    def _a_tokenizer_to_have(self) -> Self:
        if isinstance(self.tokenizer, BpeTokenizer) and self.corpus is None:
            raise ValueError("a bpe tokenizer is trained on text: name the corpus")
        return self

    @property
    def least_context(self) -> int:
        return max(part.length for part in self.mix) - 1

    @property
    def vocab_size(self) -> int:
        return rows_of(self.tokenizer)

    @property
    def spelled_by(self) -> TokenizerSpec:
        return self.tokenizer

    @property
    def text(self) -> DataSpec | None:
        if self.corpus is None:
            return None
        return DataSpec(
            name=self.name,
            corpus=self.corpus,
            tokenizer=self.tokenizer,
            held_out=self.held_out,
            held_out_seed=self.held_out_seed,
            max_documents=self.max_documents,
        )

    def capped(self, max_documents: int) -> Self:
        if self.corpus is None:
            return self
        return self.model_copy(update={"max_documents": min(self.max_documents or max_documents, max_documents)})
