"""The header of a safetensors file, checked against the file before the package itself believes it."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, NoReturn

from ssm.base.errors import UserError, shown
from ssm.base.strict_parsing import parse_json

HEADER_BYTES = 100_000_000  # what the package itself allows


def safetensors_header(path: str | Path, error: type[UserError]) -> dict[str, Any]:
    """The header of a safetensors file: by name of a tensor its dtype, shape and place, all inside the file.

    The package itself believes shapes and offsets only after it has read the header as well; asked here first, a header
    of a petabyte, or one that is nested without end, costs nothing.

    Raises:
        UserError: of the kind `error`: missing, truncated, or its header is none.
    """

    def refuse(reason: object) -> NoReturn:
        raise error(f"{path}: truncated or corrupted ({reason})")

    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(size - 8, HEADER_BYTES):
                refuse(f"it has {size:,} bytes, and its header would have {length:,}")
            content = file.read(length)
    except FileNotFoundError as problem:
        raise error(f"{path}: no such checkpoint") from problem
    except (OSError, ValueError) as problem:  # the latter of a name that no file has
        raise error(f"{path}: truncated or corrupted ({getattr(problem, 'strerror', None) or problem})") from problem
    header = parse_json(content, f"{path}: truncated or corrupted: its header", error, "JSON object")
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        refuse("its header is no mapping of tensors")
    for name, entry in header.items():
        if name == "__metadata__":
            if not all(isinstance(value, str) for value in entry.values()):
                refuse("its metadata are no text")
        elif not _is_inside(entry, size - 8 - length):
            refuse(f"the tensor {shown(name)} does not lie inside the file")
    return header


def _is_inside(entry: dict[str, Any], size: int) -> bool:
    """Whether a tensor's shape is one and its bytes are among the `size` that there are."""
    shape, place = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2:
        return False
    whole = all(type(n) is int and n >= 0 for n in (*shape, *place))
    return whole and place[0] <= place[1] <= size and math.prod(shape) <= 8 * size
