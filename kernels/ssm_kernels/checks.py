"""Check dtypes, shapes and devices of an operation's arguments. An error is one line."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Shape = tuple[int, ...]

REAL = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
COMPLEX = REAL | {torch.complex64, torch.complex128}


def check_numbers(
    operation: str, tensors: dict[str, Tensor | None], needed: int, dtypes: frozenset[torch.dtype] = REAL
) -> None:
    """Check that every argument is a tensor of one of `dtypes`, and that "resets" is bool.

    Args:
        operation: name of the operation.
        tensors: the arguments by name.
        needed: number of leading arguments that must not be None.
        dtypes: REAL or COMPLEX.

    Raises:
        ValueError: names the first wrong argument and its type.
    """
    for place, (name, x) in enumerate(tensors.items()):
        if x is None and place >= needed:
            continue
        if not isinstance(x, Tensor) or (x.dtype is not torch.bool if name == "resets" else x.dtype not in dtypes):
            got = (
                str(x.dtype).removeprefix("torch.") if isinstance(x, Tensor) else type(x).__name__.removesuffix("Type")
            )
            kind = "bool" if name == "resets" else "floating-point" if dtypes is REAL else "floating-point or complex"
            raise ValueError(f"{operation}: {name} must be a {kind} tensor; got {got}")


def check_shapes(
    operation: str, says: str, tensors: dict[str, Tensor | None], expected: Mapping[str, Shape | None]
) -> None:
    """Compare the shape of every given tensor with its expected shape (None: any shape), and their devices.

    Raises:
        ValueError: says what the operation expects and what it got.
    """
    devices = set()
    for name, tensor in tensors.items():
        if tensor is not None:
            devices.add(tensor.device)
            shape = expected.get(name)
            if shape is not None and tensor.shape != shape:
                refuse(operation, says, tensors)
    without_values = any(device.type == "meta" for device in devices)
    if len(devices) > 1 or without_values:
        where = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items() if tensor is not None)
        wrong = "tensors on meta have no values" if without_values else "all tensors must be on one device"
        raise ValueError(f"{operation}: {wrong}; got {where}")


def check_chunk(operation: str, chunk: int) -> None:
    """Check the number of tokens per chunk.

    Raises:
        ValueError: it is not a whole number above zero.
    """
    if not hasattr(chunk, "__index__") or chunk < 1:
        raise ValueError(f"{operation}: chunk must be a whole number above zero, got {chunk}")


def refuse(operation: str, says: str, tensors: dict[str, Tensor | None]) -> None:
    """Raise a ValueError with the expected shapes (`says`) and the shapes that came."""
    got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items() if tensor is not None)
    raise ValueError(f"{operation}: {says}; got {got}")
