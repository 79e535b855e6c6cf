"""Data: what a run reads, text or task; where text comes from, how it becomes tokens, and what is held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Name, Spec
from ssm.specs.corpora import CorpusSpec
from ssm.specs.corpora.base import Corpus


class BytesTokenizer(Spec):
    """A token is a byte. Document boundaries are kept beside the tokens, so no byte is reserved."""

    kind: Literal["bytes"] = "bytes"


class BpeTokenizer(Spec):
    """Byte-level BPE, trained on the training documents of this corpus."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[int, Field(ge=257)]
    train_bytes: PositiveInt = 50_000_000  # at most so much text is shown to the trainer


class FileTokenizer(Spec):
    """A tokenizer.json on disk."""

    kind: Literal["file"] = "file"
    path: str
    vocab_size: PositiveInt  # rows of the model's embedding; the tokenizer may not exceed it


class HubTokenizer(Spec):
    """A tokenizer.json of the Hugging Face hub by name, through the optional package `huggingface_hub`."""

    kind: Literal["hub"] = "hub"
    name: str
    revision: str | None = None
    vocab_size: PositiveInt


def rows_of(tokenizer: TokenizerSpec) -> int:
    """V: rows that a model's embedding needs for a tokenizer's tokens."""
    return 256 if isinstance(tokenizer, BytesTokenizer) else tokenizer.vocab_size


TokenizerSpec = Annotated[BytesTokenizer | BpeTokenizer | FileTokenizer | HubTokenizer, Field(discriminator="kind")]


@dataclass(frozen=True)
class Sources:
    """What data is made from and may change under the same spec."""

    corpora: tuple[Corpus, ...] = ()  # the user's own text, and whatever else is read in folders
    tokenizers: tuple[FileTokenizer, ...] = ()
    library: bool = False  # the running Python's own


class Data(Spec, ABC):
    """What a run reads, text or a task (ssm/specs/tasks). Whoever asks need not know which it is."""

    name: Name

    @property
    def id(self) -> str:
        return f"{self.name}-{self.content_hash}"

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V: rows that a model's embedding needs for these tokens; where inputs are none, the classes of its head."""

    @property
    def channels(self) -> int | None:
        """C: numbers of an input, where inputs are values and no tokens; None: they are tokens."""
        return None

    @property
    @abstractmethod
    def spelled_by(self) -> TokenizerSpec | None:
        """The tokenizer that text becomes its tokens by; None: its tokens stand for no text."""

    @property
    @abstractmethod
    def text(self) -> DataSpec | None:
        """The text that its token store holds; None: none."""

    @property
    @abstractmethod
    def answers(self) -> bool:
        """Whether targets are answers to what was asked, so that there is something to be right."""

    @property
    @abstractmethod
    def least_context(self) -> int:
        """Tokens of the shortest context T that its sequences fit into."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in a few words."""

    @abstractmethod
    def capped(self, max_documents: int) -> Self:
        """The same for a dry run: at most so many documents are read."""

    @property
    def sources(self) -> Sources:
        """What it is made from."""
        text, tokenizer = self.text, self.spelled_by
        return Sources(
            corpora=(text.corpus,) if text is not None and text.corpus.own_files else (),
            tokenizers=(tokenizer,) if isinstance(tokenizer, FileTokenizer) else (),
            library=text is not None and text.corpus.library,
        )

    def stored_tokens(self, read: int) -> int:
        """An estimate of the tokens that its store holds, where the longest run that reads it reads so many."""
        return 0 if self.text is None else read


class DataSpec(Data):
    """A tokenized corpus: documents are held out WHOLE, so a window never mixes training and held-out text."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name", "shard_tokens"})
    later: ClassVar[frozenset[str]] = frozenset({"choice"})
    corpus: CorpusSpec
    tokenizer: TokenizerSpec = BytesTokenizer()
    held_out: Annotated[float, Field(ge=0, le=1)] = 0.1  # fraction of the documents; 0: none, 1: all of them
    held_out_seed: int = 1234  # which documents: a function of this seed and the document's position
    choice: Annotated[float, Field(ge=0, lt=1)] = 0.0  # a fraction that is neither trained on nor measured
    max_documents: PositiveInt | None = None
    shard_tokens: PositiveInt = 64 * 2**20  # 64 Mi tokens: 128 MiB a shard at two bytes a token

    @model_validator(mode="after")
    def _something_to_train_on(self) -> DataSpec:
        if self.held_out == 1 and isinstance(self.tokenizer, BpeTokenizer):
            raise ValueError("held_out 1 leaves no document to train the bpe tokenizer on")
        if self.choice and self.held_out + self.choice >= 1:
            raise ValueError(f"held_out {self.held_out} and choice {self.choice} leave no document to train on")
        return self

    @property
    def vocab_size(self) -> int:
        return rows_of(self.tokenizer)

    @property
    def spelled_by(self) -> TokenizerSpec:
        return self.tokenizer

    @property
    def text(self) -> DataSpec:
        return self

    @property
    def answers(self) -> bool:
        return False

    @property
    def least_context(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"{self.corpus.kind} corpus, {self.tokenizer.kind} tokenizer, vocabulary {self.vocab_size:,}"

    def capped(self, max_documents: int) -> Self:
        return self.model_copy(update={"max_documents": min(self.max_documents or max_documents, max_documents)})
