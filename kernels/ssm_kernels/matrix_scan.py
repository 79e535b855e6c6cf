"""Checks and shapes that the scans with a matrix state (B, H, K, V) share: the gated scan and the delta scan."""

from __future__ import annotations

from typing import Any

from ssm_kernels.checks import check_chunk, check_numbers, check_shapes, refuse
from ssm_kernels.operators import Outputs


def check_matrix_scan(operation: str, says: str, inputs: Any, decay_axes: tuple[int, ...], chunk: int) -> None:
    """Check the arguments of a scan.

    Args:
        operation: name of the operation.
        says: the shapes that it expects, for the error.
        inputs: its Inputs.
        decay_axes: the numbers of axes that log_decay can have: 1 for (H,), 3 for (B, T, H), 4 for (B, T, H, K).
        chunk: tokens per chunk.

    Raises:
        ValueError: shapes, dtypes or devices do not match, or chunk is below 1.
    """
    tensors = inputs._asdict()
    check_numbers(operation, tensors, 3)
    k, v, log_decay = inputs.k, inputs.v, inputs.log_decay
    if v.dim() != 4 or k.dim() != 4 or min(k.shape[2:]) < 1 or v.shape[2] % k.shape[2]:
        refuse(operation, says, tensors)
    (B, T, H, V), (G, K) = v.shape, k.shape[2:]
    if log_decay is not None and log_decay.dim() not in decay_axes:
        refuse(operation, says, tensors)
    expected = {"q": (B, T, G, K), "k": (B, T, G, K), "h0": (B, H, K, V), "bonus": (H, K), "resets": (B, T)}
    expected |= {"beta": (B, T, H), "a": (B, T, H, K), "b": (B, T, H, K)}
    if log_decay is not None:
        expected["log_decay"] = {1: (H,), 3: (B, T, H), 4: (B, T, H, K)}[log_decay.dim()]
    check_shapes(operation, says, tensors, expected)
    check_chunk(operation, chunk)


def outputs(inputs: Any) -> Outputs:
    """y (B, T, H, V) in the dtype of v, and the state (B, H, K, V)."""
    B, T, H, V = inputs.v.shape
    return Outputs((B, T, H, V), (B, H, inputs.k.shape[3], V), inputs.v.dtype)
