"""The base class of corpus readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ssm.base.plugin_modules import Modules
from ssm.data.corpora.document import Document
from ssm.specs.corpora import SPECS

READERS: Modules[type[Reader]] = Modules("ssm.data.corpora", SPECS)


class Reader(ABC):
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
        """Bytes of the corpus as stored; 0: unknown."""
        return 0

    def files(self) -> list[tuple[str, Path]]:
        """(name, path) of every file that is read, if they are the user's own (`Corpus.own_files`)."""
        return []
