"""A file that holds its own checksum: a bit that has changed since it was written is found before anything is read.

Formats have a place for words of one's own (the metadata of Parquet and of safetensors). There a writer puts `BLANK`;
`write_checksum` writes over it the SHA-256 of the file as it is with the blank in it. SHA-256 takes 0.5 to 2 GB a
second.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import IO

from ssm.base.errors import UserError

MARK, DIGITS = "ssm.sha256:", 64
BLANK = MARK + "0" * DIGITS
PATTERN = re.compile(rb"%s[0-9a-f]{%d}" % (re.escape(MARK.encode()), DIGITS))
WINDOW = 4 * 2**20  # bytes at either end of a file, among which the metadata are
CHUNK = 4 * 2**20


def write_checksum(path: Path) -> str:
    """Write the digest of a file with a `BLANK` into it; returns its hex digits.

    Raises:
        OSError: the file cannot be read or written, or holds something else that looks like a digest.
    """
    with path.open("r+b") as file:
        place = _place(file)
        if place is None:
            raise OSError("no place for its digest")
        file.seek(place)
        if file.read(DIGITS) != b"0" * DIGITS:
            raise OSError(f"what it holds looks like a digest of itself already ({MARK}...)")
        digest = _digest(file, place)
        file.seek(place)
        file.write(digest.encode())
    return digest


def verify_checksum(path: str | Path, error: type[UserError], again: str) -> str:
    """Whether a file still has its checksum; returns its hex digits.

    Args:
        again: how a new one is made, in words.

    Raises:
        OSError: it cannot be read.
        UserError: of the kind `error`: it has no checksum, or has changed since.
    """
    with Path(path).open("rb") as file:
        place = _place(file)
        if place is None:
            raise error(
                f"{path}: holds no digest of itself: damaged, or made by another program or by an older version of "
                f"ssm; {again}"
            )
        file.seek(place)
        digest = file.read(DIGITS)
        if _digest(file, place).encode() != digest:
            raise error(f"{path}: damaged: its content is not what was written (SHA-256 differs); {again}")
    return digest.decode()


def stored_checksum(path: Path) -> str | None:
    """The digest that a file holds of itself, as it stands there; None: it holds none.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        place = _place(file)
        if place is None:
            return None
        file.seek(place)
        return file.read(DIGITS).decode("ascii", errors="replace")


def _place(file: IO[bytes]) -> int | None:
    """Where the digits are: of the first mark with digits near the beginning, or the last one near the end."""
    size = file.seek(0, 2)
    file.seek(0)
    found = PATTERN.search(file.read(WINDOW))
    start = 0
    if found is None:
        start = file.seek(max(0, size - WINDOW))
        found = next(reversed(list(PATTERN.finditer(file.read(WINDOW)))), None)
    return None if found is None else start + found.end() - DIGITS


def _digest(file: IO[bytes], place: int) -> str:
    """Of the whole file with zeros for its digits."""
    found = hashlib.sha256()
    file.seek(0)
    left = place
    while left and (part := file.read(min(CHUNK, left))):
        found.update(part)
        left -= len(part)
    found.update(b"0" * DIGITS)
    file.seek(place + DIGITS)
    while part := file.read(CHUNK):
        found.update(part)
    return found.hexdigest()
