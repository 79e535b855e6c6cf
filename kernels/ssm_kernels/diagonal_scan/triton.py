"""The diagonal scan in Triton: tiles of steps and channels, with a state that is carried from tile to tile.

A long sequence with few channels is cut into segments that run in parallel, twice. The first pass computes how each
segment maps a state, and the second pass starts from its initial state. There are no atomics, so equal calls give equal
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from ssm_kernels.diagonal_scan.inputs import Inputs, Options, gradient_like
from ssm_kernels.diagonal_scan.triton_kernels import diagonal_backward_kernel, diagonal_forward_kernel
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.native.triton_launch import launch, plain, real_dtype, segments, tile, unavailable
from ssm_kernels.native.triton_tiles import carry

__all__ = ["backward", "forward", "unavailable"]


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All states (B, T, D) and the last one (B, D)."""
    dtype = compute_dtype(*inputs)
    a, b, start = (_parts(x, dtype) for x in (inputs.a, inputs.b, inputs.h0))
    resets, (B, T, D) = plain(inputs.resets), inputs.b.shape
    grid, each, constants = _plan(inputs, dtype)
    sizes = (T, D, triton.cdiv(T, constants["BT"]), each)
    if grid[1] > 1:
        local, total = inputs.b.new_empty(2, grid[1], B, D, dtype=dtype)
        pieces = (_parts(local, dtype), _parts(total, dtype))
        launch(diagonal_forward_kernel, grid, a, b, resets, None, None, *pieces, *sizes, **constants)
        start = _parts(carry(total, local, inputs.h0, reverse=False), dtype)
    h, last = inputs.b.new_empty(B, T, D, dtype=dtype), inputs.b.new_empty(B, D, dtype=dtype)
    out = (_parts(h, dtype), _parts(last, dtype))
    launch(diagonal_forward_kernel, grid, a, b, resets, start, *out, None, *sizes, **constants)
    return h, last, last.new_empty(0)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of a, b and h0."""
    dtype = compute_dtype(*inputs)
    a, dh, h, h0, start = (_parts(x, dtype) for x in (inputs.a, dy, y, inputs.h0, dstate))
    resets, (B, T, D) = plain(inputs.resets), inputs.b.shape
    grid, each, constants = _plan(inputs, dtype)
    sizes = (T, D, triton.cdiv(T, constants["BT"]), each)
    common: tuple[Any, ...] = (a, dh, h, h0, resets)
    if grid[1] > 1:
        local, total = inputs.b.new_empty(2, grid[1], B, D, dtype=dtype)
        pieces = (_parts(local, dtype), _parts(total, dtype))
        launch(diagonal_backward_kernel, grid, *common, None, None, None, *pieces, *sizes, **constants)
        start = _parts(carry(total, local, dstate, reverse=True), dtype)
    constant = inputs.a.dim() == 1
    da = inputs.b.new_empty((grid[1] * B, D) if constant else (B, T, D), dtype=dtype)
    db, dh0 = inputs.b.new_empty(B, T, D, dtype=dtype), inputs.b.new_empty(B, D, dtype=dtype)
    out = tuple(_parts(x, dtype) for x in (da, db, dh0))
    launch(diagonal_backward_kernel, grid, *common, start, *out, None, *sizes, **constants)
    da = da.sum(0) if constant else da
    of_state = None if inputs.h0 is None else gradient_like(dh0, inputs.h0)
    return gradient_like(da, inputs.a), gradient_like(db, inputs.b), of_state, None


def _plan(inputs: Inputs, dtype: torch.dtype) -> tuple[tuple[int, int, int], int, dict[str, Any]]:
    """The grid, tiles per segment, and compile-time constants of the kernels, for tiles of 4096 numbers."""
    B, T, D = inputs.b.shape
    BD = tile(D, 64)
    BT = tile(T, 32 if dtype.is_complex else 64)
    blocks = triton.cdiv(D, BD)
    count, each = segments(B * blocks, T, BT)
    constants = {
        "CONSTANT": inputs.a.dim() == 1,
        "COMPLEX": dtype.is_complex,
        "BT": BT,
        "BD": BD,
        "COMPUTE": real_dtype(dtype),
    }
    return (blocks, count, B), each, constants


def _parts(x: Tensor | None, dtype: torch.dtype) -> Any:
    """The tensor in the layout of the kernels: contiguous; complex scans have pairs of real and imaginary part."""
    if x is None:
        return None
    if dtype.is_complex:
        return torch.view_as_real(x.to(dtype).resolve_conj().contiguous())
    return x.contiguous()
