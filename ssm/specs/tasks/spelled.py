"""The base class for tasks in words: their tokenizer, and their text if they need any."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.corpora import CorpusSpec
from ssm.specs.data import BpeTokenizer, BytesTokenizer, DataSpec, TokenizerSpec, vocab_size_of
from ssm.specs.tasks.base import Mix, Part, Task

HELPER = True


class PromptPart(Part):
    """Prompts of one length."""

    length: PositiveInt  # tokens of the prompt and the longest answer with its full stop

    def at(self, length: int) -> Self:
        return self.model_copy(update={"length": length})


class SpelledTask(Task):
    """A task in words. To post-train a run on text, it needs the tokenizer of this text."""

    mix: Mix[PromptPart]
    tokenizer: TokenizerSpec = BytesTokenizer()  # how text becomes tokens
    corpus: CorpusSpec | None = None  # text for the prompts, if the task uses any, and for training a BPE tokenizer
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1  # fraction of documents for test sets; training reads the rest
    held_out_seed: int = 1234  # together with a document's position, this decides whether the document is held out
    max_documents: PositiveInt | None = None  # read at most this number of documents

    @model_validator(mode="after")
    def _bpe_has_a_corpus(self) -> Self:
        if isinstance(self.tokenizer, BpeTokenizer) and self.corpus is None:
            raise ValueError("a bpe tokenizer is trained on text: name the corpus")
        return self

    @property
    def least_context(self) -> int:
        return max(part.length for part in self.mix) - 1

    @property
    def vocab_size(self) -> int:
        return vocab_size_of(self.tokenizer)

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
