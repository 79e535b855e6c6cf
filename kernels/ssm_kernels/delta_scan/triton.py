"""The delta scan in Triton: in chunks where its form allows, else step by step.

In chunks (`triton_chunks`): the delta rule with one decay per head or none, on all but short sequences. Step by step
(`triton_steps`): everything. There programs run side by side over sequences, heads and blocks of values, each through
all of time; the forward keeps the states before every `chunk` steps, the backward computes those between from them.

No atomics: gradients that are sums over blocks of values are written in parts and added in a fixed order; the same call
gives the same bits.
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

FEWEST = 32  # steps, below which chunks do not pay
TILE = 4096  # numbers of a program's state: 32 registers of every thread for each of the few tensors of that size


class _Plan(NamedTuple):
    grid: tuple[int, int]  # sequences and heads, blocks of values
    sizes: tuple[int, ...]  # T, H, G, K, V, B * H, C
    dtype: torch.dtype  # what is computed in
    constants: dict[str, Any]


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """Step by step the states before the chunks, (chunks, B, H, K, V); else nothing: they are computed again."""
    if triton_chunks.suits(inputs, FEWEST):
        return (0,)
    B, T, H, V = inputs.v.shape
    return triton.cdiv(T, options.chunk), B, H, inputs.k.shape[3], V


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, H, V), the final state (B, H, K, V) and, if asked for, the states before the chunks."""
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
    plan, (_, blocks) = _plan(inputs, options), _plan(inputs, options).grid
    (B, T, H, V), (G, K) = v.shape, k.shape[2:]
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
    """Blocks of values so that a state is of at most one size whatever K, and many: each takes one step at a time."""
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
