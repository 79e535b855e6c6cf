# mypy: disable-error-code="no-untyped-def"
"""Triton kernels of the gated scan with a decay per key dimension: outputs and gradients of a chunk.

They take the scores of triton_key_scores.py, the state before the chunk, and the gradient of the state after it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ssm_kernels.gated_scan.triton_key_scores import key_scores_backward_kernel, key_scores_kernel
from ssm_kernels.gated_scan.triton_states import (
    LOWEST,
    Problem,
    decay_from_start,
    decay_of,
    decay_to_end,
    forgotten,
    key_decay,
)
from ssm_kernels.native.triton_launch import HALF, launch, rows, tile
from ssm_kernels.native.triton_tiles import linear, load_rows, product


@triton.jit
def key_forward_kernel(
    q, v, log_decay, resets, scores, states, y, q_row, v_row, T, H, G, K, V, batch_heads, EXCLUSIVE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """y = scores v + (decay * q) state, (C, BV) for one chunk and head."""
    bh = tl.program_id(0)
    c = tl.program_id(2)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    v_at = tl.program_id(1) * BV + tl.arange(0, BV)
    v_in = v_at < V
    chunk = c.to(tl.int64) * batch_heads + bh
    out = tl.zeros([C, BV], COMPUTE)
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_in = k_at < K
        q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in)  # (C, BK)
        s = tl.load(states + (chunk * K + k_at[:, None]) * V + v_at[None, :], k_in[:, None] & v_in[None, :], 0.0)
        from_start = decay_from_start(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, EXCLUSIVE, COMPUTE)
        out = product(q_t.to(COMPUTE) * decay_of(from_start), s, out, PRECISION)
    pairs = tl.load(scores + (chunk * C + i[:, None]) * C + i[None, :], i[:, None] >= i[None, :], 0.0)  # (C, C)
    v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in)  # (C, BV)
    out = product(pairs, v_t, out, PRECISION)
    tl.store(y + (row[:, None] * H + h) * V + v_at[None, :], out.to(y.dtype.element_ty), t_in[:, None] & v_in[None, :])


@triton.jit
def key_values_kernel(
    k, dy, log_decay, resets, scores, leaving, dv, k_row, dy_row, T, H, G, K, V, batch_heads, C: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """dv = scores^T dy + (decay * k) leaving, (C, BV) for one chunk and head."""
    bh = tl.program_id(0)
    c = tl.program_id(2)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    v_at = tl.program_id(1) * BV + tl.arange(0, BV)
    v_in = v_at < V
    chunk = c.to(tl.int64) * batch_heads + bh
    out = tl.zeros([C, BV], COMPUTE)
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_in = k_at < K
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in)  # (C, BK)
        s = tl.load(leaving + (chunk * K + k_at[:, None]) * V + v_at[None, :], k_in[:, None] & v_in[None, :], 0.0)
        to_end = decay_to_end(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, C, COMPUTE)
        out = product(k_t.to(COMPUTE) * decay_of(to_end), s, out, PRECISION)
    pairs = tl.load(
        scores + (chunk * C + i[None, :]) * C + i[:, None], i[None, :] >= i[:, None], 0.0
    )  # (C, C) transposed
    dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in)  # (C, BV)
    out = product(pairs, dy_t, out, PRECISION)
    tl.store(
        dv + (row[:, None] * H + h) * V + v_at[None, :], out.to(dv.dtype.element_ty), t_in[:, None] & v_in[None, :]
    )


@triton.jit
def key_dscores_kernel(
    v, dy, dscores, v_row, dy_row, T, H, V, batch_heads, C: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """dscores = dy v^T, (NC, BH, C, C), for all pairs of tokens, including pairs without a gradient."""
    bh = tl.program_id(0)
    c = tl.program_id(1)
    b, h = bh // H, bh % H
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    out = tl.zeros([C, C], COMPUTE)
    for v0 in range(0, V, BV):
        v_at = v0 + tl.arange(0, BV)
        v_in = v_at < V
        v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in)  # (C, BV)
        dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in)  # (C, BV)
        out = product(dy_t, tl.trans(v_t), out, PRECISION)
    tl.store(dscores + ((c.to(tl.int64) * batch_heads + bh) * C + i[:, None]) * C + i[None, :], out)


@triton.jit
def key_gradients_kernel(
    q, k, v, dy, log_decay, bonus, resets, dscores, states, leaving, dq, dk, dg, du, q_row, k_row, v_row, dy_row, T, H,
    G, K, V, batch_heads, EXCLUSIVE: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Complete dq and dk, and compute dg and du, (C, BK) of one chunk and head.

    On entry, dq and dk hold the gradients through the pairs with a decay between them.
    """
    bh = tl.program_id(0)
    c = tl.program_id(2)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    k_at = tl.program_id(1) * BK + tl.arange(0, BK)
    k_in = k_at < K
    inside = t_in[:, None] & k_in[None, :]
    chunk = c.to(tl.int64) * batch_heads + bh
    dq_state = tl.zeros([C, BK], COMPUTE)  # through the state before the chunk
    dk_state = tl.zeros([C, BK], COMPUTE)  # through the state after it
    through = tl.zeros([BK], COMPUTE)
    for v0 in range(0, V, BV):
        v_at = v0 + tl.arange(0, BV)
        v_in = v_at < V
        v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in)  # (C, BV)
        dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in)  # (C, BV)
        at = (chunk * K + k_at[:, None]) * V + v_at[None, :]
        before = tl.load(states + at, k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
        after = tl.load(leaving + at, k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
        dq_state = product(dy_t, tl.trans(before), dq_state, PRECISION)
        dk_state = product(v_t, tl.trans(after), dk_state, PRECISION)
        through += tl.sum(before * after, 1)
    dq_state *= decay_of(decay_from_start(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, EXCLUSIVE, COMPUTE))
    dk_state *= decay_of(decay_to_end(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, C, COMPUTE))
    q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in).to(COMPUTE)  # (C, BK)
    k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in).to(COMPUTE)  # (C, BK)
    at = (row[:, None] * H + h) * K + k_at[None, :]
    dq_t = tl.load(dq + at, inside, 0.0)
    dk_t = tl.load(dk + at, inside, 0.0)

    # The gradient of step r: pairs (t, s) with t >= r > s; t > r if EXCLUSIVE.
    g = key_decay(log_decay, resets, b, h, t[:, None], k_at[None, :], inside, T, H, K, COMPUTE)
    left = k_t * dk_state
    later = (i < C - 1) & (t + 1 < T)
    if EXCLUSIVE:
        queries = q_t * (tl.where((i > 0)[:, None], dq_state, 0.0) + dq_t)
        following = forgotten(resets, b, t + 1, later, T, COMPUTE)[:, None] + tl.zeros([C, BK], COMPUTE)
    else:
        queries = q_t * (dq_state + dq_t)
        later_in = later[:, None] & k_in[None, :]
        following = key_decay(log_decay, resets, b, h, t[:, None] + 1, k_at[None, :], later_in, T, H, K, COMPUTE)
    # No gradient passes a decay of 0. Terms beyond it would have to cancel, so they are not summed.
    keep = tl.where(following <= LOWEST, 0.0, 1.0).to(COMPUTE)
    _, share = tl.associative_scan((keep, queries - k_t * dk_t), 0, linear, reverse=True)
    if EXCLUSIVE:
        share -= queries
    share += tl.cumsum(left, 0) - left
    share += (decay_of(tl.sum(g, 0)) * through)[None, :]
    tl.store(dg + at, tl.where(g <= LOWEST, 0.0, share).to(dg.dtype.element_ty), inside)

    # Pairs without a decay between them: a token with itself. If EXCLUSIVE: with its bonus, and the token before it.
    diagonal = dscores + chunk * C * C + i * (C + 1)
    own = tl.load(diagonal)[:, None]  # (C, 1)
    if EXCLUSIVE:
        u = tl.load(bonus + h * K + k_at, k_in, 0.0).to(COMPUTE)[None, :]
        tl.store(du + chunk * K + k_at, tl.sum(own * q_t * k_t, 0), k_in)
        first = (i > 0) & t_in
        past = tl.load(diagonal - 1, first, 0.0) * decay_of(forgotten(resets, b, t, t_in, T, COMPUTE))
        at_past = k + (row - 1)[:, None] * k_row + group * K + k_at[None, :]
        k_past = tl.load(at_past, first[:, None] & k_in[None, :], 0.0).to(COMPUTE)
        next_pair = tl.load(diagonal + C, later, 0.0) * decay_of(forgotten(resets, b, t + 1, later, T, COMPUTE))
        at_next = q + (row + 1)[:, None] * q_row + group * K + k_at[None, :]
        q_next = tl.load(at_next, later[:, None] & k_in[None, :], 0.0).to(COMPUTE)
        dq_t += own * u * k_t + past[:, None] * k_past
        dk_t += own * u * q_t + next_pair[:, None] * q_next
    else:
        dq_t += own * k_t
        dk_t += own * q_t
    tl.debug_barrier()  # no thread may overwrite what another one has yet to read
    tl.store(dq + at, dq_t + dq_state, inside)
    tl.store(dk + at, dk_t + dk_state, inside)


def score_warps(p: Problem) -> int:
    """Warps of a program that holds all keys of 16 tokens, so that few values of up to 256 keys leave the registers."""
    return (2 if p.precision == HALF else 4) * (1 if p.sizes[3] <= 128 else 2)


def scores(p: Problem) -> Tensor:
    """Decayed products of queries and keys within chunks, (NC, B, H, C, C). Only the lower triangle is written."""
    T, H, G, K, _ = p.sizes
    out = p.v.new_empty((p.chunks, p.batch, H, p.chunk, p.chunk), dtype=p.dtype)
    constants = {name: value for name, value in p.constants.items() if name != "DECAY"}
    launch(
        key_scores_kernel, (p.batch * H, p.chunk // 16, p.chunks), p.q, p.k, p.log_decay, p.bonus, p.resets, out,
        *p.strides[:2], T, H, G, K, p.batch * H, BK=tile(K, 2**16), num_warps=score_warps(p),
        **constants,
    )  # fmt: skip
    return out


def forward(p: Problem, states: Tensor) -> Tensor:
    """y (B, T, H, V) from the states before the chunks (NC, B, H, K, V)."""
    T, H, _, K, V = p.sizes
    BK, BV = tile(K, 32), tile(V, 64)
    y = p.v.new_empty(p.batch, T, H, V)
    constants = {name: value for name, value in p.constants.items() if name != "DECAY"}
    launch(
        key_forward_kernel, (p.batch * H, triton.cdiv(V, BV), p.chunks), p.q, p.v, p.log_decay, p.resets, scores(p),
        states, y, p.strides[0], p.strides[2], *p.sizes, p.batch * H, EXCLUSIVE=p.bonus is not None, BK=BK, BV=BV,
        **constants,
    )  # fmt: skip
    return y


def backward(
    p: Problem, dy: Tensor, states: Tensor, leaving: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """dq, dk per head (B, T, H, K), dv, dlog_decay (B, T, H, K) and dbonus (H, K)."""
    T, H, G, K, V = p.sizes
    BK, BV = tile(K, 32), tile(V, 64)
    batch_heads, exclusive = p.batch * H, p.bonus is not None
    q_row, k_row, v_row = p.strides
    dy, dy_row = rows(dy)
    constants = {name: value for name, value in p.constants.items() if name != "DECAY"}
    dv = p.v.new_empty(p.batch, T, H, V)
    launch(
        key_values_kernel, (batch_heads, triton.cdiv(V, BV), p.chunks), p.k, dy, p.log_decay, p.resets, scores(p),
        leaving, dv, k_row, dy_row, *p.sizes, batch_heads, BK=BK, BV=BV, **constants,
    )  # fmt: skip
    dscores = p.v.new_empty((p.chunks, p.batch, H, p.chunk, p.chunk), dtype=p.dtype)
    launch(
        key_dscores_kernel, (batch_heads, p.chunks), p.v, dy, dscores, v_row, dy_row, T, H, V, batch_heads, BV=BV,
        **constants,
    )  # fmt: skip
    dq, dk = (p.v.new_empty(p.batch, T, H, K, dtype=p.dtype) for _ in range(2))
    launch(
        key_scores_backward_kernel, (batch_heads, p.chunk // 16, p.chunks), p.q, p.k, p.log_decay, p.resets, dscores,
        dq, dk, q_row, k_row, T, H, G, K, batch_heads, p.chunk // 16, EXCLUSIVE=exclusive, BK=tile(K, 2**16),
        num_warps=score_warps(p), **constants,
    )  # fmt: skip
    assert p.log_decay is not None
    dg = torch.empty_like(p.log_decay)
    du = p.v.new_empty(p.chunks, p.batch, H, K, dtype=p.dtype) if exclusive else None
    launch(
        key_gradients_kernel, (batch_heads, triton.cdiv(K, BK), p.chunks), p.q, p.k, p.v, dy, p.log_decay, p.bonus,
        p.resets, dscores, states, leaving, dq, dk, dg, du, *p.strides, dy_row, *p.sizes, batch_heads,
        EXCLUSIVE=exclusive, BK=BK, BV=BV if p.precision == HALF else 16, num_warps=8, **constants,
    )  # fmt: skip
    return dq, dk, dv, dg, None if du is None else du.sum((0, 1))
