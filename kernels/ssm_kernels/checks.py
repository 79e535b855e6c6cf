"""Tensors of the right numbers and shapes, or one line that says which are not."""

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
    """Every argument is a tensor: of one of `dtypes`, or bool if it is the resets.

    Args:
        operation: its name.
        tensors: the arguments by name.
        needed: so many of them, the first, must not be None.
        dtypes: REAL or COMPLEX.

    Raises:
        ValueError: which one it is, and what it is.
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
    """Compare every tensor that is there with its expected shape (None: anything).

    Raises:
        ValueError: what the operation expects, and what it got.
    """
    devices = set()
    for name, tensor in tensors.items():
        if tensor is not None:
            devices.add(tensor.device)
            shape = expected.get(name)
            if shape is not None and tensor.shape != shape:
                refuse(operation, says, tensors)
    if len(devices) > 1:
        where = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items() if tensor is not None)
        raise ValueError(f"{operation}: all tensors must be on one device; got {where}")


def refuse(operation: str, says: str, tensors: dict[str, Tensor | None]) -> None:
    """Raise the one line that names what was expected and what came."""
    got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items() if tensor is not None)
    raise ValueError(f"{operation}: {says}; got {got}")
