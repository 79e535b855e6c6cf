"""What every reader of a corpus answers: its documents, in a fixed order."""

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
    """The documents of a corpus, which its spec describes."""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is what several share
            READERS.add(kind, cls)

    def __init__(self, spec: Any):
        self.spec = spec

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Every document, the same in the same order each time.

        Raises:
            DataError: what cannot be read, in one line.
        """

    def stored_bytes(self) -> int:
        """Bytes of the corpus as it is stored; 0: unknown."""
        return 0

    def files(self) -> list[tuple[str, Path]]:
        """(name, path) of every file that is read, where these are the user's own (`Corpus.own_files`)."""
        return []
