"""Data: where text comes from, how it becomes tokens, and what is held out."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Name, Spec

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class StdlibCorpus(Spec):
    """The source text of the running Python's standard library: real, on every machine, no download."""

    kind: Literal["stdlib"] = "stdlib"
    min_file_bytes: PositiveInt = 64
    max_file_bytes: PositiveInt = 400_000


class FilesCorpus(Spec):
    """Files, folders (searched recursively) or globs. A text file is a document; so is a JSONL or Parquet row."""

    kind: Literal["files"] = "files"
    paths: Words
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"  # auto: by the file's ending; .zst and .gz are opened
    text_key: str = "text"  # the JSONL key or the Parquet column that holds the text


class HubCorpus(Spec):
    """A data set of the Hugging Face hub by name, streamed through the optional package `datasets`."""

    kind: Literal["hub"] = "hub"
    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    text_key: str = "text"


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


CorpusSpec = Annotated[StdlibCorpus | FilesCorpus | HubCorpus, Field(discriminator="kind")]
TokenizerSpec = Annotated[BytesTokenizer | BpeTokenizer | FileTokenizer | HubTokenizer, Field(discriminator="kind")]


class DataSpec(Spec):
    """A tokenized corpus: documents are held out WHOLE, so a window never mixes training and held-out text."""

    beside: ClassVar[frozenset[str]] = frozenset({"name", "shard_tokens"})
    name: Name
    corpus: CorpusSpec
    tokenizer: TokenizerSpec = BytesTokenizer()
    held_out: Annotated[float, Field(ge=0, le=1)] = 0.1  # fraction of the documents; 0: none, 1: all of them
    held_out_seed: int = 1234  # which documents: a function of this seed and the document's position
    max_documents: PositiveInt | None = None
    shard_tokens: PositiveInt = 64 * 2**20  # 64 Mi tokens: 128 MiB a shard at two bytes a token

    @model_validator(mode="after")
    def _something_to_train_on(self) -> DataSpec:
        if self.held_out == 1 and isinstance(self.tokenizer, BpeTokenizer):
            raise ValueError("held_out 1 leaves no document to train the bpe tokenizer on")
        return self

    @property
    def id(self) -> str:
        return f"{self.name}-{self.content_hash}"

    @property
    def vocab_size(self) -> int:
        """V: rows that a model's embedding needs for these tokens."""
        return 256 if isinstance(self.tokenizer, BytesTokenizer) else self.tokenizer.vocab_size
