"""Corpora, one file for each kind. Each one is a stream of documents in a fixed order.

To add a corpus, write its spec in ssm/specs/corpora/ and its reader here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ssm.base.errors import DataError
from ssm.data.corpora.base import READERS, CorpusReader, Document
from ssm.specs.corpora import CorpusSpec

__all__ = ["Document", "build_reader", "documents"]

READERS.discover()


def build_reader(spec: CorpusSpec) -> CorpusReader:
    """The reader of a corpus."""
    return READERS[spec.kind](spec)


def documents(spec: CorpusSpec) -> Iterator[Document]:
    """Stream the documents of a corpus in its fixed order, without empty documents.

    Raises:
        DataError: a path, line or row is missing, unreadable or not as the spec says; or the corpus has no text.
    """
    empty = True
    for document in build_reader(spec).documents():
        if document.text:
            empty = False
            yield document
    if empty:
        raise DataError(f"{spec.words}: the corpus has no text")
