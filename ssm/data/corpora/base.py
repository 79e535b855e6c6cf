"""Documents, and the base class of the readers of corpora."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import DataError
from ssm.base.plugin_modules import Modules
from ssm.specs.corpora import SPECS

READERS: Modules[type[CorpusReader]] = Modules("ssm.data.corpora", SPECS)


@dataclass(frozen=True, slots=True)
class Document:
    """One document: it is held out as a whole, and a state may be reset at its start."""

    name: str  # the same on every machine: a path relative to the corpus; for tables also the line or row
    text: bytes  # normally UTF-8; other bytes of a text file are kept
    stored: int  # bytes as stored between the previous document and the end of this one


def as_text(value: object, where: str) -> bytes:
    """The UTF-8 bytes of a JSON or Parquet value. A null is an empty document.

    Raises:
        DataError: the value is not text; the message starts with `where`.
    """
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace")  # JSON allows single surrogates, UTF-8 does not
    if isinstance(value, bytes):
        return value
    raise DataError(f"{where} holds {type(value).__name__}, expected text")


class CorpusReader(ABC):
    """Reads the documents of a corpus that its spec describes."""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # None: a base class
            READERS.add(kind, cls)

    def __init__(self, spec: Any):
        self.spec = spec

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Every document, each time in the same order.

        Raises:
            DataError: a document cannot be read.
        """

    def stored_bytes(self) -> int:
        """Bytes of the corpus as stored, perhaps compressed: the total of the progress display; 0: unknown."""
        return 0

    def files(self) -> list[tuple[str, Path]]:
        """(name, path) of every file that is read, if they are the user's own (`Corpus.own_files`).

        They are in the order of the documents.

        Raises:
            MissingFilesError: a file of the spec does not exist.
            DataError: a file cannot be read.
        """
        return []

    def require_utf8(self) -> None:  # noqa: B027 (only the user's own files can be something else)
        """Check that the text is in UTF-8.

        Raises:
            DataError: too many bytes of all files together are not, and the message names the worst file; or a file is
                missing.
        """
