"""Where documents come from: one file for each kind of corpus, each a stream of documents in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator

from ssm.base.errors import DataError
from ssm.data.corpora import files, hub, stdlib
from ssm.data.corpora.document import Document
from ssm.specs.data import CorpusSpec, FilesCorpus, StdlibCorpus

__all__ = ["Document", "documents", "stored_bytes"]


def documents(spec: CorpusSpec) -> Iterator[Document]:
    """Stream the corpus in its fixed order, one document at a time; documents without any text are left out.

    Raises:
        DataError: one line naming the path, line or row that is missing, unreadable or not what the spec says, or
            that the corpus holds no text at all.
    """
    empty = True
    for document in _stream(spec):
        if document.text:
            empty = False
            yield document
    if empty:
        raise DataError(f"{describe(spec)}: the corpus holds no text")


def stored_bytes(spec: CorpusSpec) -> int:
    """Bytes of the corpus as it is stored (compressed files count as such): the total of the progress; 0 if unknown."""
    if isinstance(spec, StdlibCorpus):
        return sum(size for _, size in stdlib.source_files(spec))
    if isinstance(spec, FilesCorpus):
        return sum(path.stat().st_size for _, path in files.source_files(spec))
    return 0


def describe(spec: CorpusSpec) -> str:
    """The corpus in a few words, for the start of a message."""
    if isinstance(spec, StdlibCorpus):
        return "the standard library"
    return ", ".join(spec.paths) if isinstance(spec, FilesCorpus) else spec.name


def _stream(spec: CorpusSpec) -> Iterator[Document]:
    if isinstance(spec, StdlibCorpus):
        return stdlib.read(spec)
    return files.read(spec) if isinstance(spec, FilesCorpus) else hub.read(spec)
