"""A document, and how the value of a JSON key or a column becomes its text."""

from __future__ import annotations

from dataclasses import dataclass

from ssm.base.errors import DataError


@dataclass(frozen=True, slots=True)
class Document:
    """One document: the unit that is held out, and where a state may be reset."""

    name: str  # the same on every machine: a path relative to the corpus, and the line or row inside a table
    text: bytes  # UTF-8 by intention; whatever bytes a text file holds are kept
    stored: int  # bytes of the corpus as stored that were read to get here from the previous document


def as_text(value: object, where: str) -> bytes:
    """The UTF-8 bytes of a JSON or Parquet value; a null is an empty document.

    Raises:
        DataError: the value is no text; the message starts with `where`.
    """
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace")  # JSON can spell half a surrogate pair, UTF-8 cannot
    if isinstance(value, bytes):
        return value
    raise DataError(f"{where} holds {type(value).__name__}, expected text")
