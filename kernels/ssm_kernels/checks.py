"""Shapes that fit, or one line that says which do not."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Shape = tuple[int, ...]


def check_shapes(
    operation: str, says: str, tensors: dict[str, Tensor | None], expected: Mapping[str, Shape | None]
) -> None:
    """Compare every tensor that is there with its expected shape (None: anything).

    Raises:
        ValueError: what the operation expects, and what it got.
    """
    for name, tensor in tensors.items():
        shape = expected.get(name)
        if tensor is not None and shape is not None and tuple(tensor.shape) != shape:
            refuse(operation, says, tensors)
    devices = {tensor.device for tensor in tensors.values() if tensor is not None}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items() if tensor is not None)
        raise ValueError(f"{operation}: all tensors must be on one device; got {where}")


def refuse(operation: str, says: str, tensors: dict[str, Tensor | None]) -> None:
    """Raise the one line that names what was expected and what came."""
    got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items() if tensor is not None)
    raise ValueError(f"{operation}: {says}; got {got}")
