"""A document, and the conversion of JSON and Parquet values to text."""

from __future__ import annotations

from dataclasses import dataclass

from ssm.base.errors import DataError


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
