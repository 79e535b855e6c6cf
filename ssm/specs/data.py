"""Data that a run reads: text (corpus, tokenizer, held-out documents) or a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Name, Spec
from ssm.specs.corpora import CorpusSpec
from ssm.specs.corpora.base import Corpus

ROUNDING = 1e-12  # of sums of shares: .1 + .2 is .3


class BytesTokenizer(Spec):
    """Each byte is a token. Document boundaries are stored separately, so no byte is reserved for them."""

    later: ClassVar[frozenset[str]] = frozenset({"vocab_size"})
    kind: Literal["bytes"] = "bytes"
    vocab_size: Annotated[int, Field(ge=256)] = 256  # V, rows of the model's embedding; those beyond 256 are unused


class BpeTokenizer(Spec):
    """Byte-level BPE, trained on the training documents of this corpus."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[int, Field(ge=257)]  # V, the number of tokens, the 256 bytes included
    train_bytes: PositiveInt = 50_000_000  # train on at most this number of bytes


class FileTokenizer(Spec):
    """A file tokenizer.json on disk."""

    kind: Literal["file"] = "file"
    path: str  # path of the file
    vocab_size: PositiveInt  # V, rows of the model's embedding, at least the number of tokens


class HubTokenizer(Spec):
    """A file tokenizer.json on the Hugging Face hub. Needs the optional package `huggingface_hub`."""

    kind: Literal["hub"] = "hub"
    name: str
    revision: str | None = None  # branch, tag or commit; without it, the newest
    vocab_size: PositiveInt  # V, rows of the model's embedding, at least the number of tokens


TokenizerSpec = Annotated[BytesTokenizer | BpeTokenizer | FileTokenizer | HubTokenizer, Field(discriminator="kind")]


@dataclass(frozen=True)
class Sources:
    """Sources of data whose content can change while the spec stays the same."""

    corpora: tuple[Corpus, ...] = ()  # the user's files and folders
    tokenizers: tuple[FileTokenizer, ...] = ()
    library: bool = False  # whether the standard library of the running Python is read


class Data(Spec, ABC):
    """Data that a run reads: a text, or a task (ssm/specs/tasks). Callers treat both alike."""

    name: Name

    @property
    def id(self) -> str:
        return f"{self.name}-{self.content_hash}"

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V: rows of the model's embedding. Where inputs are not tokens: classes of the model's head."""

    @property
    def channels(self) -> int | None:
        """C: numbers in an input that is not a token. None: inputs are tokens."""
        return None

    @property
    @abstractmethod
    def spelled_by(self) -> TokenizerSpec | None:
        """The tokenizer of the tokens. None: the tokens do not represent text."""

    @property
    @abstractmethod
    def text(self) -> DataSpec | None:
        """The text in the token store. None: it has no text."""

    @property
    def spelling(self) -> tuple[object, ...]:
        """What decides which token has which number: equal spellings have equal tokens.

        It is the tokenizer. The vocabulary of bpe also depends on the documents on which it is trained.
        """
        text = self.text
        if text is None or not isinstance(self.spelled_by, BpeTokenizer):
            return (self.spelled_by,)
        return self.spelled_by, text.corpus, text.held_out, text.held_out_seed, text.choice, text.max_documents

    def is_spelled_like(self, other: Data) -> bool:
        """Whether tokens have the same numbers in both, as far as both represent text."""
        return not (self.spelled_by and other.spelled_by) or self.spelling == other.spelling

    @property
    @abstractmethod
    def answers(self) -> bool:
        """Whether the targets are answers, which can be right or wrong."""

    @property
    @abstractmethod
    def least_context(self) -> int:
        """The smallest context T, in tokens, that holds any of the sequences."""

    @property
    @abstractmethod
    def words(self) -> str:
        """A short description for messages."""

    @abstractmethod
    def capped(self, max_documents: int) -> Self:
        """The data of a dry run, which reads at most `max_documents`."""

    @property
    def sources(self) -> Sources:
        """Sources whose content can change while the spec stays the same."""
        text, tokenizer = self.text, self.spelled_by
        return Sources(
            corpora=(text.corpus,) if text is not None and text.corpus.own_files else (),
            tokenizers=(tokenizer,) if isinstance(tokenizer, FileTokenizer) else (),
            library=text is not None and text.corpus.library,
        )

    def stored_tokens(self, read: int) -> int:
        """Estimated size of the token store, in tokens, if the longest run on it reads `read` tokens."""
        return 0 if self.text is None else read


class DataSpec(Data):
    """A tokenized corpus. Documents are held out whole, so no window mixes training text and held-out text."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name", "shard_tokens"})
    later: ClassVar[frozenset[str]] = frozenset({"choice"})
    answers: ClassVar[bool] = False
    least_context: ClassVar[int] = 1
    corpus: CorpusSpec  # source of the documents
    tokenizer: TokenizerSpec = BytesTokenizer()  # how text becomes tokens
    held_out: Annotated[float, Field(ge=0, le=1)] = 0.1  # fraction of documents that is held out for measurements
    held_out_seed: int = 1234  # together with a document's position, this decides whether the document is held out
    # Fraction of documents that is set aside for choosing the numbers of repairs. It is not trained on or measured.
    choice: Annotated[float, Field(ge=0, lt=1)] = 0.0
    max_documents: PositiveInt | None = None  # read at most this number of documents
    # Tokens in a file of the token store. 64 Mi tokens take 128 MiB at two bytes for each token.
    shard_tokens: PositiveInt = 64 * 2**20

    @model_validator(mode="after")
    def _something_to_train_on(self) -> DataSpec:
        if self.held_out == 1 and isinstance(self.tokenizer, BpeTokenizer):
            raise ValueError("held_out 1 leaves no document to train the bpe tokenizer on")
        if self.choice and self.held_out + self.choice >= 1:
            raise ValueError(f"held_out {self.held_out} and choice {self.choice} leave no document to train on")
        return self

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def spelled_by(self) -> TokenizerSpec:
        return self.tokenizer

    @property
    def text(self) -> DataSpec:
        return self

    @property
    def words(self) -> str:
        return f"{self.corpus.kind} corpus, {self.tokenizer.kind} tokenizer, vocabulary {self.vocab_size:,}"

    def kept_from(self, trained: DataSpec, *, choice: bool = False) -> bool:
        """Whether no held-out document of this text is a training document of `trained`.

        With equal seeds, two texts of one corpus draw the same number for a document: below `held_out` it is held out,
        below `held_out` + `choice` it is set aside. Equal documents in two different corpora are not found.

        Args:
            choice: whether this holds for the documents that are set aside, too.
        """
        if self.corpus != trained.corpus:
            return True
        kept = self.held_out + self.choice * choice
        return self.held_out_seed == trained.held_out_seed and kept <= trained.held_out + trained.choice + ROUNDING

    def capped(self, max_documents: int) -> Self:
        return self.model_copy(update={"max_documents": min(self.max_documents or max_documents, max_documents)})
