"""A user's own text, in the tokens of the user's own model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ssm.base.errors import DataError
from ssm.base.files import absolute
from ssm.base.names import HUB
from ssm.base.seeds import numpy_generator
from ssm.data.batches import HeldOutWindows
from ssm.data.build import build_store
from ssm.data.store import TokenSplit, TokenStore
from ssm.data.tokenizers import JsonTokenizer, make_tokenizer
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, DataSpec, FileTokenizer, HubTokenizer, TokenizerSpec

if TYPE_CHECKING:
    from ssm.models.load import LoadedModel

ENOUGH = 0.75  # of an embedding's rows belong to tokens of the model's own tokenizer; the rest is padding
BYTES = 256


def own_text(
    paths: Sequence[str], tokenizer: TokenizerSpec, folder: str | Path, held_out: float, name: str = "text"
) -> TokenStore:
    """The token store of some files, built at `folder` unless it is there.

    Args:
        paths: text, JSONL or Parquet files, folders or globs, as of `FilesCorpus`.
        held_out: the share of the documents that go to the split of that name; 1: all, 0: none.

    Raises:
        DataError: a file is missing, unreadable or empty, or there are too few documents for two splits.
        OutputError: `folder` holds something else, or cannot be written.
    """
    corpus = FilesCorpus(paths=absolute(paths))
    build_store(DataSpec(name=name, corpus=corpus, tokenizer=tokenizer, held_out=held_out), folder)
    store = TokenStore.open(folder)
    for split, what in ((store.train, "training part"), (store.held_out, "held-out part")):
        split.name = ", ".join(paths) + (f" ({what})" if 0 < held_out < 1 else "")  # errors name the text
    return store


def tokenizer_of(loaded: LoadedModel, given: str | None = None) -> TokenizerSpec:
    """The tokenizer to read text with: the one that was given, or else the model's own.

    Args:
        given: as of `tokenizer_named`.

    Raises:
        DataError: there is none, it cannot be read, or it is of another vocabulary.
    """
    vocab_size = loaded.model.vocab_size
    if given is not None:
        return tokenizer_named(given, vocab_size)
    if loaded.tokenizer is None:
        choices = "a tokenizer.json, a folder that holds one, owner/model of the hub, or bytes"
        raise DataError(f"{loaded.name}: {loaded.note}; name its tokenizer with --tokenizer ({choices})")
    _check(loaded.tokenizer, vocab_size)
    return loaded.tokenizer


def tokenizer_named(text: str, vocab_size: int) -> TokenizerSpec:
    """The tokenizer that a user names, checked against a model's vocabulary.

    Args:
        text: "bytes", a tokenizer.json, a folder that holds one, or a name of the hub ("owner/model",
            "owner/model@revision").
        vocab_size: V, of the model.

    Raises:
        DataError: it is none of these, cannot be read, or is of another vocabulary.
    """
    path = Path(text).expanduser()
    spec: TokenizerSpec
    if text == "bytes":
        spec = BytesTokenizer()
    elif path.exists():
        file = path / "tokenizer.json" if path.is_dir() else path
        spec = FileTokenizer(path=str(file.absolute()), vocab_size=vocab_size)
    elif re.fullmatch(HUB, text):
        name, _, revision = text.partition("@")
        spec = HubTokenizer(name=name, revision=revision or None, vocab_size=vocab_size)
    else:
        raise DataError(f"{text}: no such tokenizer.json or folder, no name of the hub (owner/model), and not 'bytes'")
    _check(spec, vocab_size)
    return spec


def check_vocabulary(rows: int, tokens: int, vocab_size: int, source: str) -> None:
    """Whether a tokenizer can be the one of a model.

    Args:
        rows: that its tokens need in an embedding: the largest and one.
        tokens: how many it has.
        vocab_size: V, of the model.
        source: of the tokenizer, for errors.

    Raises:
        DataError: it needs more rows than V, or uses less than three quarters of them.
    """
    if rows > vocab_size or tokens < ENOUGH * vocab_size:
        needs = f"needs {rows:,} rows" if rows > vocab_size else f"has {tokens:,} tokens"
        raise DataError(
            f"{source}: a tokenizer of another vocabulary (it {needs}, the model's embedding has {vocab_size:,} rows); "
            "name the model's own with --tokenizer"
        )


def windows_of(split: TokenSplit, length: int, at_least: int, use: str = "", shortest: int = 1) -> int:
    """How many windows of `length` inputs (and a last target) a split has, end to end.

    Args:
        at_least: so many are needed.
        use: what for, for errors; by default their number.
        shortest: a length that may be advised.

    Raises:
        DataError: there are fewer.
    """
    count = split.n_tokens // (length + 1)
    if count < at_least:
        fitting = split.n_tokens // at_least - 1
        power = 2 ** (fitting.bit_length() - 1) if fitting > 0 else 0
        shorter = f", or --length {power}" if power >= shortest else ""
        raise DataError(
            f"{split.name}: {split.n_tokens:,} tokens; --length {length} needs at least {at_least * (length + 1):,} "
            f"({use or f'{at_least} windows'}): give more text{shorter}"
        )
    return count


def disjoint_windows(split: TokenSplit, length: int, seed: int, at_least: int = 4, shortest: int = 1) -> HeldOutWindows:
    """All windows of `length` inputs (and a last target) that lie end to end in a split, in seeded random order.

    No two share a token, so that what is measured on them is independent where documents are short.

    Raises:
        DataError: there are fewer than `at_least`; no length below `shortest` is advised.
    """
    count = windows_of(split, length, at_least, shortest=shortest)
    order = numpy_generator(seed, "disjoint_windows").permutation(count)
    return HeldOutWindows(split, (length + 1) * order.astype(np.int64), length)


def _check(spec: TokenizerSpec, vocab_size: int) -> None:
    """`check_vocabulary`, of a spec; in whose own check the vocabulary's size would be called the spec's."""
    if isinstance(spec, FileTokenizer | HubTokenizer):
        source = spec.path if isinstance(spec, FileTokenizer) else spec.name
        tokenizer = make_tokenizer(spec.model_copy(update={"vocab_size": 2**32}), iter(()))
        assert isinstance(tokenizer, JsonTokenizer)
        numbers = set(tokenizer.inner.get_vocab(with_added_tokens=True).values())
        check_vocabulary(max(numbers, default=-1) + 1, len(numbers), vocab_size, source)
    else:
        check_vocabulary(BYTES, BYTES, vocab_size, "bytes")
