"""Where documents come from: one file for each kind of corpus, each a stream of documents in a fixed order.

A new one: its spec in ssm/specs/corpora/, and its reader here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssm.base.errors import DataError
from ssm.data.corpora.base import READERS
from ssm.data.corpora.document import Document
from ssm.specs.corpora import CorpusSpec

__all__ = ["Document", "documents", "source_files", "stored_bytes"]

READERS.discover()


def documents(spec: CorpusSpec) -> Iterator[Document]:
    """Stream the corpus in its fixed order, one document at a time; documents without any text are left out.

    Raises:
        DataError: one line naming the path, line or row that is missing, unreadable or not what the spec says, or
            that the corpus holds no text at all.
    """
    empty = True
    for document in READERS[spec.kind](spec).documents():
        if document.text:
            empty = False
            yield document
    if empty:
        raise DataError(f"{spec.words}: the corpus holds no text")


def stored_bytes(spec: CorpusSpec) -> int:
    """Bytes of the corpus as it is stored (compressed files count as such): the total of the progress; 0 if unknown."""
    return READERS[spec.kind](spec).stored_bytes()


def source_files(spec: CorpusSpec) -> list[tuple[str, Path]]:
    """(name, path) of every file of the user's that is read, in the order of the documents.

    Raises:
        DataError: one that the spec names is not there.
    """
    return READERS[spec.kind](spec).files()
