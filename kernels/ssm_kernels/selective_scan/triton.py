"""Mamba-1's scan in Triton, with softplus and bias of dt, recurrence, readout, D and the gate z in one kernel.

A program takes some channels with all their states and goes through time tile by tile. A long sequence with few
channels is cut into segments that run in parallel, twice. The first pass computes how each segment maps a state, and
the second pass starts from its initial state. The forward pass stores the states before the tiles (every 16 steps),
because the backward pass needs them. dB and dC are summed over blocks of channels in a fixed order. There are no
atomics, so equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
from torch import Tensor

from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.native.triton_launch import (
    all_rows,
    launch,
    plain,
    real_dtype,
    rows,
    segments,
    tile,
    unavailable,
)
from ssm_kernels.native.triton_tiles import carry
from ssm_kernels.selective_scan.inputs import Inputs, Options
from ssm_kernels.selective_scan.triton_kernels import (
    selective_backward_kernel,
    selective_carry_kernel,
    selective_forward_kernel,
)

__all__ = ["backward", "forward", "saved_shape", "unavailable"]

STEPS = 16  # per tile
TILE = 8192  # numbers per tile: 64 registers per thread for each tensor of this size


class _Plan(NamedTuple):
    grid: tuple[int, int, int]  # blocks of channels, segments, batch
    each: int  # tiles per segment
    warps: int
    constants: dict[str, Any]


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """The states before the tiles: (tiles, B, N, D)."""
    B, T, D = inputs.u.shape
    return triton.cdiv(T, STEPS), B, inputs.A.shape[1], D


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, D), the final state (B, D, N) and, if `save`, the states before the tiles."""
    u, dt, A, B, C, D, dt_bias, z, h0, resets = inputs
    dtype, plan, N = compute_dtype(*inputs), _plan(inputs, options), A.shape[1]
    (batch, T, channels), (_, count, _) = u.shape, plan.grid
    tensors, strides = all_rows(u, dt, B, C, z)
    u, dt, B, C, z = tensors
    start = None if h0 is None else h0.to(dtype).transpose(1, 2).contiguous()
    common = (u, dt, plain(A), B, C, plain(D), plain(dt_bias), z, plain(resets))
    sizes = (*strides, T, channels, N, triton.cdiv(T, STEPS), plan.each)
    if count > 1:
        local, total = u.new_empty(2, count, batch, N, channels, dtype=dtype)
        launch(
            selective_forward_kernel, plan.grid, *common, None, None, None, local, total, *sizes, num_warps=plan.warps,
            **plan.constants,
        )  # fmt: skip
        start = carry(total, local, start, reverse=False)
    y = u.new_empty(batch, T, channels)
    saved = u.new_empty(saved_shape(inputs, options) if save else (0,), dtype=dtype)
    last = u.new_empty(batch, N, channels, dtype=dtype)
    launch(
        selective_forward_kernel, plan.grid, *common, start, y, saved if save else None, last, None, *sizes,
        num_warps=plan.warps, **plan.constants,
    )  # fmt: skip
    return y, last.transpose(1, 2).contiguous(), saved


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of all inputs but the resets."""
    u, dt, A, B, C, D, dt_bias, z, _, resets = inputs
    dtype, plan, N = compute_dtype(*inputs), _plan(inputs, options), A.shape[1]
    (batch, T, channels), (blocks, count, _) = u.shape, plan.grid
    tensors, strides = all_rows(u, dt, B, C, z)
    u, dt, B, C, z = tensors
    dy, dy_row = rows(dy)
    rates, D, dt_bias, resets = plain(A), plain(D), plain(dt_bias), plain(resets)
    start = dstate.to(dtype).transpose(1, 2).contiguous()  # (B, N, D)
    sizes = (T, channels, N, triton.cdiv(T, STEPS), plan.each)
    if count > 1:
        local, total = u.new_empty(2, count, batch, N, channels, dtype=dtype)
        launch(
            selective_carry_kernel, plan.grid, dt, rates, C, dt_bias, z, dy, resets, local, total, strides[1],
            strides[3], strides[4], dy_row, *sizes, num_warps=plan.warps, **plan.constants,
        )  # fmt: skip
        start = carry(total, local, start, reverse=True)
    du, ddt = u.new_empty(batch, T, channels), dt.new_empty(batch, T, channels)
    dz = None if z is None else z.new_empty(batch, T, channels)
    dB, dC = u.new_empty(2, blocks, batch, T, N, dtype=dtype)
    dA = u.new_empty(count * batch, N, channels, dtype=dtype)
    dD, dbias = (None if x is None else u.new_empty(count * batch, channels, dtype=dtype) for x in (D, dt_bias))
    dh0 = u.new_empty(batch, N, channels, dtype=dtype)
    launch(
        selective_backward_kernel, plan.grid, u, dt, rates, B, C, D, dt_bias, z, dy, resets, saved, start, du, ddt, dA,
        dB, dC, dD, dbias, dz, dh0, *strides, dy_row, *sizes, num_warps=2 * plan.warps, **plan.constants,
    )  # fmt: skip
    sums = (None if x is None else x.sum(0) for x in (dD, dbias))
    return du, ddt, dA.sum(0).t().contiguous(), dB.sum(0), dC.sum(0), *sums, dz, dh0.transpose(1, 2).contiguous(), None


def _plan(inputs: Inputs, options: Options) -> _Plan:
    """Choose blocks of channels, so that tiles have one size for any N, and segments that fill the GPU."""
    batch, T, channels = inputs.u.shape
    BN = max(2, triton.next_power_of_2(inputs.A.shape[1]))
    BD = tile(channels, max(4, TILE // (STEPS * BN)), 4)
    blocks = triton.cdiv(channels, BD)
    count, each = segments(batch * blocks, T, STEPS)
    constants = {
        "SOFTPLUS": options.dt_softplus,
        "BT": STEPS,
        "BN": BN,
        "BD": BD,
        "COMPUTE": real_dtype(compute_dtype(*inputs)),
    }
    return _Plan((blocks, count, batch), each, 4, constants)
