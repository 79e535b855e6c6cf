"""The delta scan in Triton: in chunks if possible, else step by step.

`triton_chunks` computes the delta rule without decay or with a decay per head, except for short sequences.
`triton_steps` computes all other cases step by step, in parallel over sequences, heads and blocks of values. Its
forward pass stores a state every `chunk` steps, and its backward pass computes the states between them again.

There are no atomics. Gradients that are sums over blocks of values are written in parts and added in a fixed order. So
equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ssm_kernels.delta_scan import triton_chunks
from ssm_kernels.delta_scan.inputs import Inputs, Options
from ssm_kernels.delta_scan.triton_steps import backward_kernel, forward_kernel
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.native.triton_launch import all_rows, launch, plain, real_dtype, tile, unavailable

__all__ = ["backward", "forward", "saved_shape", "unavailable"]

FEWEST = 32  # smallest number of steps for which chunks are faster
TILE = 4096  # numbers of a state per program: 32 registers per thread for each tensor of this size


class _Plan(NamedTuple):
    grid: tuple[int, int]  # sequences and heads, blocks of values
    sizes: tuple[int, ...]  # T, H, G, K, V, B * H, C
    dtype: torch.dtype  # what is computed in
    constants: dict[str, Any]


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """Step by step: the states before the chunks, (chunks, B, H, K, V). In chunks: empty, they are computed again."""
    if triton_chunks.suits(inputs, FEWEST):
        return (0,)
    B, T, H, V = inputs.v.shape
    return triton.cdiv(T, options.chunk), B, H, inputs.k.shape[3], V


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, H, V), the final state (B, H, K, V) and, if `save`, the states before the chunks."""
    if triton_chunks.suits(inputs, FEWEST):
        y, last = triton_chunks.forward(inputs)
        return y, last, last.new_empty(0)
    q, k, v, beta, log_decay, h0, a, b, resets = inputs
    plan, states = _plan(inputs, options), saved_shape(inputs, options)
    (q, k, v, a, b), strides = all_rows(q, k, v, a, b)
    y = v.new_empty(inputs.v.shape)
    saved = v.new_empty(states if save else (0,), dtype=plan.dtype)
    last = v.new_empty(*states[1:], dtype=plan.dtype)
    launch(
        forward_kernel, plan.grid, q, k, v, plain(beta), plain(log_decay), plain(h0), a, b, plain(resets), y,
        saved if save else None, last, *strides, *plan.sizes, **plan.constants,
    )  # fmt: skip
    return y, last, saved


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of all inputs but the resets."""
    if triton_chunks.suits(inputs, FEWEST):
        return *triton_chunks.backward(dy, dstate, inputs), None, None, None
    q, k, v, beta, log_decay, _, a, b, resets = inputs
    plan = _plan(inputs, options)
    (B, T, H, V), (G, K), blocks = v.shape, k.shape[2:], plan.grid[1]
    (q, k, v, a, b, dy), strides = all_rows(q, k, v, a, b, dy)

    def parts(x: Tensor | None, *size: int) -> Tensor | None:
        return None if x is None else v.new_empty(B, T, H, blocks, *size, dtype=plan.dtype)

    dq, dk, da, db = (parts(x, K) for x in (q, k, a, b))
    dbeta = parts(beta)
    dlog_decay = parts(log_decay, *(() if log_decay is None else log_decay.shape[3:]))
    dv, dh0 = v.new_empty(B, T, H, V), torch.empty_like(saved[0])
    scratch = saved.new_empty(min(options.chunk, T), B, H, K, V)
    launch(
        backward_kernel, plan.grid, q, k, v, plain(beta), plain(log_decay), a, b, plain(resets), dy,
        dstate.contiguous(), saved, scratch, dq, dk, dv, dbeta, dlog_decay, dh0, da, db, *strides, *plan.sizes,
        num_warps=8, num_stages=1, **plan.constants,
    )  # fmt: skip
    dq, dk = (x.view(B, T, G, -1, K).sum(3) for x in (dq, dk) if x is not None)
    dbeta, dlog_decay, da, db = (None if x is None else x.sum(3) for x in (dbeta, dlog_decay, da, db))
    return dq, dk, dv, dbeta, dlog_decay, dh0, da, db, None


def _plan(inputs: Inputs, options: Options) -> _Plan:
    """Choose blocks of values so that the part of a state in one program has a bounded size for any K."""
    (B, T, H, V), (G, K) = inputs.v.shape, inputs.k.shape[2:]
    dtype = compute_dtype(*inputs)
    BK = tile(K, 2**20)
    BV = tile(V, min(32, max(4, TILE // BK)), 4)
    constants = {
        "DECAY": "none" if inputs.log_decay is None else "head" if inputs.log_decay.dim() == 3 else "key",
        "BK": BK,
        "BV": BV,
        "COMPUTE": real_dtype(dtype),
    }
    return _Plan((B * H, triton.cdiv(V, BV)), (T, H, G, K, V, B * H, min(options.chunk, T)), dtype, constants)
