"""Writes one split of a token store: shards of equal length, document boundaries and checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ssm.data.store import OFFSET
from ssm.data.tokenizers import token_dtype
from ssm.specs.data import DataSpec


class SplitWriter:
    """Appends documents to the shards of one split, and hashes the files."""

    def __init__(self, folder: Path, name: str, spec: DataSpec):
        self.folder, self.name, self.shard_tokens = folder, name, spec.shard_tokens
        self.dtype = token_dtype(spec.vocab_size)
        self.files: dict[str, dict[str, Any]] = {}
        self.shards: list[str] = []
        self.boundaries = _HashedFile(folder / f"{name}.documents")
        self.shard: _HashedFile | None = None
        self.n_tokens = self.n_documents = 0

    def add(self, tokens: np.ndarray) -> None:
        """Append one document. A document without tokens is skipped."""
        if not len(tokens):
            return
        self.boundaries.write(np.array([self.n_tokens], OFFSET))
        self.n_documents += 1
        tokens = tokens.astype(self.dtype, copy=False)
        while len(tokens):
            if self.shard is None:
                self.shards.append(f"{self.name}-{len(self.shards):05}.tokens")
                self.shard = _HashedFile(self.folder / self.shards[-1])
            room = self.shard_tokens - self.n_tokens % self.shard_tokens
            self.shard.write(tokens[:room])
            self.n_tokens += min(room, len(tokens))
            if room <= len(tokens):
                self._finish(self.shard)
                self.shard = None
            tokens = tokens[room:]

    def close(self) -> None:
        self._finish(self.boundaries)
        if self.shard is not None:
            self._finish(self.shard)

    def summary(self) -> dict[str, Any]:
        """The split's entry in the manifest."""
        return {
            "tokens": self.n_tokens,
            "documents": self.n_documents,
            "shards": self.shards,
            "boundaries": self.boundaries.path.name,
        }

    def _finish(self, file: _HashedFile) -> None:
        self.files[file.path.name] = file.close()


class _HashedFile:
    """A file that hashes its content while it is written."""

    def __init__(self, path: Path):
        self.path = path
        self.file = path.open("wb", buffering=2**20)
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, values: np.ndarray) -> None:
        content = values.tobytes()
        self.file.write(content)
        self.digest.update(content)
        self.size += len(content)

    def close(self) -> dict[str, Any]:
        """Sync and close the file; returns its entry in the manifest."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}
