"""Corpora, one file for each kind. Each one is a stream of documents in a fixed order.

To add a corpus, write its spec in ssm/specs/corpora/ and its reader here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ssm.base.errors import DataError
from ssm.data.corpora.base import READERS, Document
from ssm.specs.corpora import CorpusSpec

__all__ = ["Document", "documents", "require_utf8", "source_files", "stored_bytes"]

READERS.discover()


def documents(spec: CorpusSpec) -> Iterator[Document]:
    """Stream the documents of a corpus in its fixed order, without empty documents.

    Raises:
        DataError: a path, line or row is missing, unreadable or not as the spec says; or the corpus has no text.
    """
    empty = True
    for document in READERS[spec.kind](spec).documents():
        if document.text:
            empty = False
            yield document
    if empty:
        raise DataError(f"{spec.words}: the corpus has no text")


def stored_bytes(spec: CorpusSpec) -> int:
    """Bytes of the corpus as stored, perhaps compressed: the total of the progress display; 0 if unknown."""
    return READERS[spec.kind](spec).stored_bytes()


def source_files(spec: CorpusSpec) -> list[tuple[str, Path]]:
    """(name, path) of every file of the user's that is read, in the order of the documents.

    Raises:
        MissingFilesError: a file of the spec does not exist.
        DataError: a file cannot be read.
    """
    return READERS[spec.kind](spec).files()


def require_utf8(spec: CorpusSpec) -> None:
    """Check that the user's own files are text in UTF-8.

    Raises:
        DataError: a file is missing or is something else.
    """
    READERS[spec.kind](spec).require_utf8()
