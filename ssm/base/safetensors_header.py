"""Read the header of a safetensors file, and check it against the file before the safetensors package reads it."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, NoReturn

from ssm.base.errors import UserError, shown
from ssm.base.strict_parsing import parse_json

HEADER_BYTES = 100_000_000  # the limit of the safetensors package


def refuse_pointer(path: str | Path, start: bytes, error: type[UserError]) -> None:
    """Raise `error` if the first bytes of a file are those of a Git LFS pointer."""
    if start.startswith(b"version "):
        raise error(f"{path}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder")


def safetensors_header(path: str | Path, error: type[UserError]) -> dict[str, Any]:
    """The header of a safetensors file: dtype, shape and place of every tensor, by name.

    The safetensors package checks a header only after reading it. This function is cheap even for a damaged header of a
    petabyte or of endless nesting.

    Raises:
        UserError: an `error`: the file is missing, unreadable or truncated, its header is invalid, or a tensor is
            outside the file.
    """

    def refuse(reason: object) -> NoReturn:
        raise error(f"{path}: truncated or corrupted ({reason})")

    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(8)
            refuse_pointer(path, start, error)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(size - 8, HEADER_BYTES):
                refuse(f"the file has {size:,} bytes, but its header should have {length:,}")
            content = file.read(length)
    except FileNotFoundError as problem:
        raise error(f"{path}: no such checkpoint") from problem
    except (OSError, ValueError) as problem:  # ValueError: an impossible file name
        raise error(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem
    header = parse_json(content, f"{path}: truncated or corrupted: its header", error)
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        refuse("its header is not a mapping of tensors")
    for name, entry in header.items():
        if name == "__metadata__":
            if not all(isinstance(value, str) for value in entry.values()):
                refuse("its metadata are not text")
        elif not _is_inside(entry, size - 8 - length):
            refuse(f"the tensor {shown(name)} is outside the file")
    return header


def _is_inside(entry: dict[str, Any], size: int) -> bool:
    """Whether a tensor's entry is valid and its bytes are inside the `size` bytes of data."""
    shape, place = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2:
        return False
    whole = all(type(n) is int and n >= 0 for n in (*shape, *place))
    return whole and place[0] <= place[1] <= size and math.prod(shape) <= 8 * size
