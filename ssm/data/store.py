"""The token store on disk, as it is read: shards with checksums, document boundaries beside the tokens.

A task has one too: its examples are made where they are read, so that its store is a manifest, the tokenizer of its
words and, where it takes sentences from a text, that text.

    manifest.json              written last: a folder without it is no store
    train-00000.tokens ...     the tokens, little-endian uint8, uint16 or uint32 by the size of the vocabulary
    train.documents            where each document starts in its split, int64
    held_out-00000.tokens ...  the same for the documents that no training ever reads
    choice-00000.tokens ...    the same for those that nothing measures either, where the spec sets some aside
    tokenizer.json             unless a token is a byte

`ssm.data.build` writes it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ssm.base.errors import DataError, shown
from ssm.base.records import Manifest
from ssm.base.strict_parsing import read_json, shaped
from ssm.data.tokenizers import ByteTokenizer, Tokenizer, read_tokenizer, token_dtype
from ssm.specs.data import Data
from ssm.specs.tasks import parse_data

MANIFEST, TOKENIZER = "manifest.json", "tokenizer.json"
FORMAT, VERSION = "ssm token store", 1
SPLITS = ("train", "held_out", "choice")
ALWAYS = SPLITS[:2]  # of every text; the third one where its spec sets it aside
VERIFY_BELOW = 2**30  # bytes: smaller stores have their checksums verified at every opening
OFFSET = np.dtype("<i8")


class TokenSplit:
    """The tokens of one split as one long sequence, over as many shards as it takes.

    Args:
        name: for errors: where the split comes from.
        shards: (n_i,) unsigned tokens each; all but the last are equally long.
        documents: (D,) int64, rising: the position of every document's first token; the first is 0. None, and no
            shard: an empty split.
        vocab_size: V; every token is below it.
    """

    def __init__(self, name: str, shards: Sequence[np.ndarray | Shard], documents: np.ndarray, vocab_size: int):
        self.name, self.shards, self.documents, self.vocab_size = name, list(shards), documents, vocab_size
        self.n_tokens = sum(len(shard) for shard in self.shards)
        self.n_documents = len(documents)
        self._shard_tokens = len(self.shards[0]) if self.shards else 1

    def read(self, start: int, length: int) -> np.ndarray:
        """Tokens [start, start + length) as (length,) int64, across the borders of shards.

        Raises:
            IndexError: they are not all inside the split.
        """
        return self.rows(np.array([start]), length)[0]

    def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Tokens [start, start + length) for each of (B,) starts: (B, length) int64. Raises as `read` does."""
        tokens = np.empty((len(starts), length), np.int64)
        for row, start in zip(tokens, starts.tolist(), strict=True):
            if start < 0 or start + length > self.n_tokens:
                raise IndexError(f"{self.name}: tokens {start} to {start + length} of {self.n_tokens}")
            shard, within = divmod(start, self._shard_tokens)
            filled = 0
            while filled < length:
                part = self.shards[shard][within : within + length - filled]
                row[filled : filled + len(part)] = part
                filled += len(part)
                shard, within = shard + 1, 0
        return tokens

    def document_starts(self, start: int, length: int) -> np.ndarray:
        """Which of the tokens [start, start + length) are the first of a document: (length,) bool."""
        marks = np.zeros(length, bool)
        first, last = np.searchsorted(self.documents, (start, start + length))
        marks[self.documents[first:last] - start] = True
        return marks


class Shard:
    """The tokens of one shard, as slices. Read, not mapped: a mapped file that shrinks or goes kills its reader."""

    def __init__(self, path: Path, dtype: np.dtype):
        self.path, self.dtype = path, dtype
        self.file = path.open("rb", buffering=0)
        self.length = os.fstat(self.file.fileno()).st_size // dtype.itemsize

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> np.ndarray:
        """Tokens [start, stop), fewer at the end: (n,), read-only.

        Raises:
            DataError: the file has shrunk since it was opened, or can no longer be read.
        """
        start, stop, _ = part.indices(self.length)
        size = self.dtype.itemsize
        try:
            content = os.pread(self.file.fileno(), (stop - start) * size, start * size)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read any more ({error.strerror or error})") from error
        if len(content) != (stop - start) * size:
            raise DataError(f"{self.path}: has shrunk since it was opened; {_AGAIN}")
        return np.frombuffer(content, self.dtype)


@dataclass(frozen=True)
class TokenStore:
    """A finished token store: splits that share no document, and the manifest that says what they are."""

    folder: Path
    manifest: dict[str, Any]
    train: TokenSplit
    held_out: TokenSplit
    choice: TokenSplit  # empty where the spec sets nothing aside

    @classmethod
    def open(cls, folder: str | Path, verify: bool | None = None) -> TokenStore:
        """Open a store; nothing but the manifest is read before it is asked for.

        Args:
            folder: the store's folder.
            verify: compare every file with its SHA-256 (sizes are always compared); None: below 1 GiB.

        Raises:
            DataError: one line naming the file that is missing, truncated, changed or of another format version.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        try:
            _check_files(folder, manifest["files"], verify)
            vocab_size = int(manifest["vocab_size"])
            if vocab_size != parse_data(manifest["spec"], str(folder / MANIFEST)).vocab_size:
                raise ValueError("vocab_size is not that of its spec")
            dtype = token_dtype(vocab_size)
            splits = [
                TokenSplit(
                    f"{folder} ({name})",
                    [Shard(folder / shard, dtype) for shard in manifest["splits"][name]["shards"]],
                    _mapped(folder / manifest["splits"][name]["boundaries"], OFFSET),
                    vocab_size,
                )
                if manifest["splits"] and (name in ALWAYS or name in manifest["splits"])
                else TokenSplit(f"{folder} ({name})", [], np.empty(0, np.int64), vocab_size)
                for name in SPLITS
            ]
        except OSError as error:  # it was there a moment ago, or may not be read
            path = error.filename or folder
            raise DataError(f"{path}: cannot be read ({error.strerror or error}); {_AGAIN}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{folder / MANIFEST}: damaged ({type(error).__name__}: {error}); {_AGAIN}") from error
        return cls(folder, manifest, *splits)

    @property
    def spec(self) -> Data:
        """What the store was made from."""
        return parse_data(self.manifest["spec"], str(self.folder / MANIFEST))

    def insist_on(self, spec: Data, who: str) -> None:
        """Refuse to serve `who` ("the run") with other tokens than those of `spec`.

        Raises:
            DataError: the store was made from another spec.
        """
        if self.spec != spec:
            raise DataError(f"{self.folder}: holds the tokens of '{self.spec.id}', {who} needs '{spec.id}'")

    @property
    def vocab_size(self) -> int:
        """V: rows that a model's embedding needs."""
        return self.train.vocab_size

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens, from the store itself; it is read once.

        Raises:
            DataError: the store is a task's whose tokens stand for no text.
        """
        if self.spec.spelled_by is None:
            raise DataError(f"{self.folder}: the tokens of '{self.spec.name}' stand for no text")
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        path = self.folder / TOKENIZER
        return read_tokenizer(path, self.vocab_size) if TOKENIZER in self.manifest["files"] else ByteTokenizer()


_AGAIN = "delete the folder and run `ssm tokenize` again"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store.

    Raises:
        DataError: there is none, it is not JSON, or it is of another format version.
    """
    path = folder / MANIFEST
    what = "no finished token store here" if folder.is_dir() else "no such token store"
    manifest = read_json(path, DataError, "manifest", f"{folder}: {what}; `ssm tokenize` makes it")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{path}: not the manifest of a token store")
    if manifest.get("version") != VERSION:
        raise DataError(f"{path}: format version {shown(manifest.get('version'))}, this code reads {VERSION}; {_AGAIN}")
    return dict(shaped(manifest, Manifest, f"{path}: damaged", DataError))


def _check_files(folder: Path, files: dict[str, dict[str, Any]], verify: bool | None) -> None:
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path}: missing from the token store; {_AGAIN}")
        size = path.stat().st_size
        if size != expected["bytes"]:
            what = "truncated" if size < expected["bytes"] else "too long"
            raise DataError(f"{path}: {what}, {size} bytes of {expected['bytes']}; {_AGAIN}")
    if verify is None:
        verify = sum(expected["bytes"] for expected in files.values()) < VERIFY_BELOW
    if verify:
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing leaves the interpreter's lock
            digests = list(pool.map(_sha256, (folder / name for name in files)))
        for (name, expected), digest in zip(files.items(), digests, strict=True):
            if digest != expected["sha256"]:
                raise DataError(f"{folder / name}: its content is not what was written (SHA-256 differs); {_AGAIN}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    """The file as a plain read-only array over its memory map (np.memmap's own slices are slow to make)."""
    if not path.stat().st_size:  # nothing can be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
