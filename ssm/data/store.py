"""The token store on disk, as it is read: shards of tokens with checksums, and the boundaries of documents.

A task has a store too, although its examples are made on demand. It holds a manifest, the tokenizer of the task's
words and, if the task takes sentences from a text, the tokens of that text.

    manifest.json              written last: a folder without it is not a store
    train-00000.tokens ...     the tokens, little-endian uint8, uint16 or uint32 by the size of the vocabulary
    train.documents            start of each document in its split, int64
    held_out-00000.tokens ...  the same for documents that no training reads
    choice-00000.tokens ...    the same for documents that are used only to choose settings, if the spec has them
    tokenizer.json             unless a token is a byte

`ssm.data.build` writes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from ssm.base.checksum import sha256_of
from ssm.base.errors import DataError, shown
from ssm.base.records import Manifest
from ssm.base.strict_parsing import read_json, shaped
from ssm.data.tokenizers import ByteTokenizer, Tokenizer, read_tokenizer, token_dtype
from ssm.specs.data import Data
from ssm.specs.tasks import parse_data

MANIFEST, TOKENIZER = "manifest.json", "tokenizer.json"
FORMAT, VERSION = "ssm token store", 1
SPLITS = ("train", "held_out", "choice")
ALWAYS = SPLITS[:2]  # splits of every text; "choice" exists only if the spec requests it
OPEN_FILES = 100  # of a store: a process may have 1,024 open files, or only 256, and a store may have thousands
VERIFY_BELOW = 2**30  # bytes: the checksums of smaller stores are verified at every opening
OFFSET = np.dtype("<i8")
Identity = tuple[int, int]  # of a file, whatever its name: device and inode


class TokenSplit:
    """The tokens of one split as one long sequence over any number of shards.

    Args:
        name: origin of the split, for errors.
        shards: (n_i,) unsigned tokens each; all but the last have the same length. No shards: an empty split.
        documents: (D,) int64, rising: the position of every document's first token. The first one is 0.
        vocab_size: V; every token is below it.
    """

    def __init__(self, name: str, shards: Sequence[np.ndarray | Shard], documents: np.ndarray, vocab_size: int):
        self.name, self.shards, self.documents, self.vocab_size = name, list(shards), documents, vocab_size
        self.n_tokens = sum(len(shard) for shard in self.shards)
        self._shard_tokens = len(self.shards[0]) if self.shards else 1

    @property
    def usual_document(self) -> int:
        """Half of the tokens are in documents of at most this many tokens. The split must not be empty."""
        sizes = np.sort(np.diff(self.documents, append=self.n_tokens))  # (D,)
        return int(sizes[np.searchsorted(np.cumsum(sizes), self.n_tokens / 2)])

    def read(self, start: int, length: int) -> np.ndarray:
        """Tokens [start, start + length) as (length,) int64, also across shards.

        Raises:
            IndexError: the tokens are not all inside the split.
        """
        return self.rows(np.array([start]), length)[0]

    def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Tokens [start, start + length) for each of (B,) starts: (B, length) int64. Raises IndexError as `read`."""
        tokens = np.empty((len(starts), length), np.int64)
        for row, start in zip(tokens, starts.tolist(), strict=True):
            self.require_inside(start, length)
            shard, within = divmod(start, self._shard_tokens)
            filled = 0
            while filled < length:
                part = self.shards[shard][within : within + length - filled]
                row[filled : filled + len(part)] = part
                filled += len(part)
                shard, within = shard + 1, 0
        return tokens

    def require_inside(self, start: int, length: int) -> None:
        """Raise IndexError if the tokens [start, start + length) are not all inside the split."""
        if start < 0 or start + length > self.n_tokens:
            raise IndexError(f"{self.name}: tokens {start} to {start + length} of {self.n_tokens}")

    def document_starts(self, start: int, length: int) -> np.ndarray:
        """Marks the first tokens of documents within [start, start + length): (length,) bool."""
        marks = np.zeros(length, bool)
        first, last = np.searchsorted(self.documents, (start, start + length))
        marks[self.documents[first:last] - start] = True
        return marks


class Shard:
    """The tokens of one shard, as slices. Not mapped: if a mapped file shrinks or vanishes, its reader crashes.

    Args:
        opened: `_opened`, or a cache of its files.
    """

    def __init__(self, path: Path, dtype: np.dtype, opened: Callable[[Path, Identity], IO[bytes]]):
        self.path, self.dtype, self.opened = path, dtype, opened
        status = path.stat()
        self.length, self.identity = status.st_size // dtype.itemsize, (status.st_dev, status.st_ino)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> np.ndarray:
        """Tokens [start, stop), fewer at the end: (n,), read-only.

        Raises:
            DataError: the file has become shorter or was replaced since the store was opened, or cannot be read.
        """
        start, stop, _ = part.indices(self.length)
        size = self.dtype.itemsize
        try:
            file = self.opened(self.path, self.identity)
            content = os.pread(file.fileno(), (stop - start) * size, start * size)
        except OSError as error:
            raise DataError(f"{self.path}: can no longer be read ({error.strerror or error})") from error
        if len(content) != (stop - start) * size:
            raise DataError(f"{self.path}: has become shorter since it was opened; {_AGAIN}")
        return np.frombuffer(content, self.dtype)


@dataclass(frozen=True)
class TokenStore:
    """A finished token store: splits without common documents, and the manifest that describes them."""

    folder: Path
    manifest: dict[str, Any]
    train: TokenSplit
    held_out: TokenSplit
    choice: TokenSplit  # empty unless the spec requests it

    @classmethod
    def open(cls, folder: str | Path, verify: bool | None = None) -> TokenStore:
        """Open a store. Only the manifest is read at once.

        Args:
            folder: the store's folder.
            verify: compare the SHA-256 of every file (sizes are always compared). None: only below 1 GiB.

        Raises:
            DataError: a file is missing, truncated, changed or of another format version.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        try:
            _check_files(folder, manifest["files"], verify)
            vocab_size = int(manifest["vocab_size"])
            if vocab_size != parse_data(manifest["spec"], str(folder / MANIFEST)).vocab_size:
                raise ValueError("vocab_size differs from its spec's")
            dtype = token_dtype(vocab_size)
            opened = lru_cache(OPEN_FILES)(_opened)
            splits = [
                TokenSplit(
                    f"{folder} ({name})",
                    [Shard(folder / shard, dtype, opened) for shard in manifest["splits"][name]["shards"]],
                    _mapped(folder / manifest["splits"][name]["boundaries"], OFFSET),
                    vocab_size,
                )
                if manifest["splits"] and (name in ALWAYS or name in manifest["splits"])
                else TokenSplit(f"{folder} ({name})", [], np.empty(0, np.int64), vocab_size)
                for name in SPLITS
            ]
        except OSError as error:  # a file has vanished, or may not be read
            path = error.filename or folder
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{folder / MANIFEST}: damaged ({type(error).__name__}: {error}); {_AGAIN}") from error
        return cls(folder, manifest, *splits)

    @property
    def spec(self) -> Data:
        """The spec from which the store was made."""
        return parse_data(self.manifest["spec"], str(self.folder / MANIFEST))

    def require(self, spec: Data, who: str) -> None:
        """Check that the store holds the tokens of `spec`, which `who` ("the run") needs.

        Raises:
            DataError: the store was made from another spec.
        """
        if self.spec != spec:
            raise DataError(f"{self.folder}: holds the tokens of '{self.spec.id}', {who} needs '{spec.id}'")

    @property
    def vocab_size(self) -> int:
        """V: the rows that a model's embedding needs."""
        return self.train.vocab_size

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the store's tokens, read once.

        Raises:
            DataError: the store belongs to a task whose tokens represent no text.
        """
        if self.spec.spelled_by is None:
            raise DataError(f"{self.folder}: the tokens of '{self.spec.name}' represent no text")
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        path = self.folder / TOKENIZER
        return read_tokenizer(path, self.vocab_size) if TOKENIZER in self.manifest["files"] else ByteTokenizer()


_AGAIN = "delete the folder and run `ssm tokenize` again"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store.

    Raises:
        DataError: the manifest is missing, is not JSON, or has another format version.
    """
    path = folder / MANIFEST
    what = "no finished token store here" if folder.is_dir() else "no such token store"
    manifest = read_json(path, DataError, "manifest", f"{folder}: {what}; run `ssm tokenize` to make it")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{path}: is not the manifest of a token store")
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
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing releases the interpreter's lock
            digests = list(pool.map(sha256_of, (folder / name for name in files)))
        for (name, expected), digest in zip(files.items(), digests, strict=True):
            if digest != expected["sha256"]:
                raise DataError(f"{folder / name}: its content has changed since it was written (SHA-256); {_AGAIN}")


def _opened(path: Path, identity: Identity) -> IO[bytes]:
    """The file, unbuffered.

    Raises:
        DataError: another file has this name now.
        OSError: it cannot be opened.
    """
    file = path.open("rb", buffering=0)
    status = os.fstat(file.fileno())
    if (status.st_dev, status.st_ino) != identity:
        file.close()
        raise DataError(f"{path}: was replaced since the store was opened; type the same command again")
    return file


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    """The file as a plain read-only array over its memory map (slices of np.memmap are slow)."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
