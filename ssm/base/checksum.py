"""A checksum inside a file, so that a changed bit is found before the file is read.

A writer puts `BLANK` into the metadata of a Parquet or safetensors file. `write_checksum` replaces it by the SHA-256 of
the file with the blank. SHA-256 processes 0.5 to 2 GB per second.
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
WINDOW = 4 * 2**20  # bytes at both ends of a file that are searched for the metadata
CHUNK = 4 * 2**20


def write_checksum(path: Path) -> None:
    """Write the digest of a file into its `BLANK`.

    Raises:
        OSError: the file cannot be read or written, or contains other text that looks like a digest.
    """
    with path.open("r+b") as file:
        place = _place(file)
        if place is None:
            raise OSError("the file has no place for its digest")
        file.seek(place)
        if file.read(DIGITS) != b"0" * DIGITS:
            raise OSError(f"the file already contains text that looks like a digest ({MARK}...)")
        digest = _digest(file, place)
        file.seek(place)
        file.write(digest.encode())


def verify_checksum(path: str | Path, error: type[UserError], again: str) -> str:
    """Check that a file still matches its checksum, and return the hex digits.

    Args:
        again: text that says how to make the file again.

    Raises:
        OSError: the file cannot be read.
        UserError: an `error`: the file has no checksum, or changed since it was written.
    """
    with Path(path).open("rb") as file:
        place = _place(file)
        if place is None:
            raise error(
                f"{path}: contains no digest: it is damaged, or was made by another program or an older version of "
                f"ssm; {again}"
            )
        file.seek(place)
        digest = file.read(DIGITS)
        if _digest(file, place).encode() != digest:
            raise error(f"{path}: damaged: its content is not what was written (SHA-256 differs); {again}")
    return digest.decode()


def sha256_of(path: Path) -> str:
    """The hex digits of the SHA-256 of a whole file. Raises OSError: the file cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stored_checksum(path: Path) -> str | None:
    """The digest inside a file, without checking it; None if there is none.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        place = _place(file)
        if place is None:
            return None
        file.seek(place)
        return file.read(DIGITS).decode("ascii", errors="replace")


def _place(file: IO[bytes]) -> int | None:
    """Position of the digits: after the first mark near the beginning, or else after the last mark near the end."""
    size = file.seek(0, 2)
    file.seek(0)
    match = PATTERN.search(file.read(WINDOW))
    start = 0
    if match is None:
        start = file.seek(max(0, size - WINDOW))
        match = next(reversed(list(PATTERN.finditer(file.read(WINDOW)))), None)
    return None if match is None else start + match.end() - DIGITS


def _digest(file: IO[bytes], place: int) -> str:
    """Digest of the whole file with zeros instead of its digits."""
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while left and (part := file.read(min(CHUNK, left))):
        digest.update(part)
        left -= len(part)
    digest.update(b"0" * DIGITS)
    file.seek(place + DIGITS)
    while part := file.read(CHUNK):
        digest.update(part)
    return digest.hexdigest()
