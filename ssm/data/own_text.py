"""The user's own text, in the tokens of the user's own model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ssm.base.errors import DataError, nearest
from ssm.base.files import reading
from ssm.base.hub import HUB, is_name
from ssm.base.paths import absolute, home_expanded
from ssm.base.seeds import numpy_generator
from ssm.data.batches import HeldOutWindows
from ssm.data.build import build_store
from ssm.data.corpora.files import FilesReader
from ssm.data.store import TOKENIZER, TokenSplit, TokenStore
from ssm.data.tokenizers import JsonTokenizer, make_tokenizer
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, DataSpec, FileTokenizer, HubTokenizer, TokenizerSpec
from ssm.specs.diagnosis_defaults import TEXT_KEY

if TYPE_CHECKING:
    from ssm.models.load import LoadedModel

LEAST_USED = 0.75  # share of an embedding's rows that the model's own tokenizer uses; the others are padding
BYTES = 256


def own_text(
    paths: Sequence[str], tokenizer: TokenizerSpec, folder: str | Path, held_out: float, text_key: str = TEXT_KEY
) -> TokenStore:
    """Build or open the token store of some files at `folder`.

    Args:
        paths: text, JSON or Parquet files, folders or globs, as in `FilesCorpus`.
        held_out: the share of documents for the held-out split; 1: all, 0: none.
        text_key: JSON key or Parquet column with the text.

    Raises:
        DataError: a file is missing, unreadable, empty or no text in UTF-8, or there are too few documents for two
            splits.
        OutputError: `folder` holds something else, or cannot be written.
    """
    corpus = FilesCorpus(paths=absolute(paths), text_key=text_key)
    build_store(DataSpec(name="text", corpus=corpus, tokenizer=tokenizer, held_out=held_out), folder, utf8=True)
    store = TokenStore.open(folder)
    for split, what in ((store.train, "training part"), (store.held_out, "held-out part")):
        split.name = ", ".join(paths) + (f" ({what})" if 0 < held_out < 1 else "")  # for error messages
    return store


def require_files(paths: Sequence[str], text_key: str = TEXT_KEY) -> None:
    """Check that there are such files, before anything slow.

    Args:
        paths, text_key: as in `own_text`.

    Raises:
        DataError: there are no paths, a file is missing, or its name says that it cannot be read; or as in
            `FilesReader.require_texts`.
    """
    if not paths:
        raise DataError("--text: expected files, folders or globs, got none")
    FilesReader(FilesCorpus(paths=absolute(paths), text_key=text_key)).require_texts()


def tokenizer_of(loaded: LoadedModel, given: str | None = None) -> TokenizerSpec:
    """The tokenizer to read text with: the given one, or else the model's own.

    Args:
        given: as `text` in `tokenizer_named`.

    Raises:
        DataError: the model has no tokenizer, or it cannot be read, or it has another vocabulary; or the model is a run
            of ssm on other tokens than bytes.
    """
    vocab_size, run = loaded.model.vocab_size, loaded.run
    # The `vocab_size` of a run can be far above its tokens. A tokenizer that replaces the recorded one has to fit.
    own = run is not None and (given in (None, "bytes") or loaded.tokenizer is None)
    least = 0.0 if own else LEAST_USED
    if given == "bytes" and run is not None and not isinstance(run.data.spelled_by, BytesTokenizer):
        raise DataError(f"{loaded.name}: was not trained on bytes; leave out --tokenizer bytes")
    if given is not None:
        return tokenizer_named(given, vocab_size, least)
    if loaded.tokenizer is None:
        choices = "a tokenizer.json, a folder that holds one, owner/model of the hub, or bytes"
        raise DataError(f"{loaded.name}: {loaded.note}; name its tokenizer with --tokenizer ({choices})")
    _check(loaded.tokenizer, vocab_size, least)
    return loaded.tokenizer


def tokenizer_words(store: TokenStore) -> str:
    """The name of the tokenizer of a store, and the SHA-256 of its file if it has one."""
    spec, file = store.spec.spelled_by, store.manifest["files"].get(TOKENIZER)
    assert spec is not None
    if isinstance(spec, FileTokenizer):
        name = spec.path
    elif isinstance(spec, HubTokenizer):
        name = spec.name if spec.revision is None else f"{spec.name}@{spec.revision}"
    else:
        name = spec.kind
    return name if file is None else f"{name} (SHA-256 {file['sha256'][:16]}…)"


@reading(DataError)
def tokenizer_named(text: str, vocab_size: int, least: float = LEAST_USED) -> TokenizerSpec:
    """The tokenizer that a user names, checked against a model's vocabulary.

    Args:
        text: "bytes", a tokenizer.json, a folder that holds one, or a name on the hub ("owner/model",
            "owner/model@revision"; see `ssm.base.hub.is_name`).
        vocab_size, least: as in `check_vocabulary`.

    Raises:
        DataError: it is none of these, cannot be read, or has another vocabulary.
    """
    path = home_expanded(text)
    spec: TokenizerSpec
    if text == "bytes":
        check_vocabulary(BYTES, BYTES, vocab_size, text, least)
        return BytesTokenizer(vocab_size=vocab_size)
    if path.exists():
        file = path / "tokenizer.json" if path.is_dir() else path
        spec = FileTokenizer(path=str(file.absolute()), vocab_size=vocab_size)
    elif is_name(text):
        name, _, revision = text.partition("@")
        spec = HubTokenizer(name=name, revision=revision or None, vocab_size=vocab_size)
    else:
        on_hub = f" (for the hub, write {text}@main)" if re.fullmatch(HUB, text) else ""
        raise DataError(f"{text}: no such tokenizer.json or folder{on_hub}; {_nearest_path(path)}")
    _check(spec, vocab_size, least)
    return spec


def _nearest_path(missing: Path) -> str:
    """The hint about a path that does not exist: the name that is nearest to its first missing part."""
    while not missing.parent.is_dir():
        missing = missing.parent
    names = [path.name for path in missing.parent.glob("*")]
    return nearest(missing.name, names, "give one, a name on the hub (owner/model) or bytes")


def check_vocabulary(rows: int, tokens: int, vocab_size: int, source: str, least: float = LEAST_USED) -> None:
    """Check that a tokenizer can belong to a model.

    Args:
        rows: embedding rows that its tokens need: the largest token plus one.
        tokens: number of its tokens.
        vocab_size: V of the model.
        source: name of the tokenizer, for errors.
        least: share of the rows that the tokens have to use.

    Raises:
        DataError: it needs more than V rows, or uses too few of them.
    """
    if rows > vocab_size or tokens < least * vocab_size:
        needs = f"needs {rows:,} rows" if rows > vocab_size else f"has {tokens:,} tokens"
        raise DataError(
            f"{source}: this tokenizer has another vocabulary (it {needs}, the model's embedding has {vocab_size:,} "
            "rows); give the model's own one with --tokenizer"
        )


def windows_of(split: TokenSplit, length: int, at_least: int, use: str = "", shortest: int = 1) -> int:
    """Number of windows of `length` inputs (and one more target) that fit end to end into a split.

    Args:
        at_least: the required number.
        use: its purpose, for errors; by default the error only gives the number.
        shortest: the error does not advise a shorter length than this.

    Raises:
        DataError: there are fewer windows than `at_least`.
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


def disjoint_windows(split: TokenSplit, length: int, seed: int, at_least: int, shortest: int = 1) -> HeldOutWindows:
    """All windows of `length` inputs (and one more target) that lie end to end in a split, in seeded random order.

    They share no token, so measurements on them are independent if documents are short.

    Raises:
        DataError: there are fewer than `at_least`. The error advises no length below `shortest`.
    """
    count = windows_of(split, length, at_least, shortest=shortest)
    order = numpy_generator(seed, "disjoint_windows").permutation(count)
    return HeldOutWindows(split, (length + 1) * order.astype(np.int64), length)


def _check(spec: TokenizerSpec, vocab_size: int, least: float) -> None:
    """`check_vocabulary` for a tokenizer.json. Reading it with the model's size would report an error of the spec."""
    if isinstance(spec, FileTokenizer | HubTokenizer):
        source = spec.path if isinstance(spec, FileTokenizer) else spec.name
        tokenizer = make_tokenizer(spec.model_copy(update={"vocab_size": 2**32}), iter(()))
        assert isinstance(tokenizer, JsonTokenizer)
        numbers = set(tokenizer.inner.get_vocab(with_added_tokens=True).values())
        check_vocabulary(max(numbers, default=-1) + 1, len(numbers), vocab_size, source, least)
