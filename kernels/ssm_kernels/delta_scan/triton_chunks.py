# mypy: disable-error-code="no-untyped-def"
"""The delta rule in chunks, with one decay per head or none: matrix products in chunks, and a recurrence over states.

Step i writes k_i w_i^T with w_i = beta_i u_i, where u_i is v_i minus the value of the state at k_i. In a chunk that
starts from S, with E_i = v_i - (decay from the start to i) S^T k_i and

    L_ij = (decay from j to i) k_i . k_j for i > j, else 0            (C, C)
    u = E - L beta u, so that u = E - X beta E with X = L - L beta X, row after row

(Yang et al. 2024, "Gated Delta Networks", Section 3.3, the WY form. X exists for any beta, without any division.) With
w instead of v, the rest is the gated scan: its kernels compute outputs and gradients inside chunks. In the backward
pass, they give dw as the gradient of their values. Because u reads earlier steps, this becomes dz = dw - X^T beta dw.
Then dv = beta dz, and the read at k_i is one more query of the gated scan, with query k_i and gradient -dv_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ssm_kernels.delta_scan.inputs import Inputs
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.gated_scan import triton_head
from ssm_kernels.gated_scan.inputs import Inputs as GatedInputs
from ssm_kernels.gated_scan.triton_head import key_to_end, pair_decay, query_decay
from ssm_kernels.gated_scan.triton_states import Problem, by_group, decay_of, head_decay, problem
from ssm_kernels.native.triton_launch import HALF, HALF_STATE, launch, plain, rows, tile
from ssm_kernels.native.triton_tiles import load_rows, product

LARGEST_K = 256  # largest K with a state in one program in half precision; half of it with three products
CHUNK = 32  # largest number of tokens: X, a chunk's reads and a state are in registers together


@triton.jit
def solve_kernel(
    k, v, beta, log_decay, resets, mixing, errors, reads, k_row, v_row, T, H, G, K, V, batch_heads,
    DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """X (NC, B, H, C, C) of one chunk, and u = errors + reads S: errors (B, T, H, V) and reads (B, T, H, K)."""
    bh = tl.program_id(0)
    c = tl.program_id(1)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    strength = tl.load(beta + row * H + h, t_in, 0.0).to(COMPUTE)
    overlap = tl.zeros([C, C], COMPUTE)
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_at < K)  # (C, BK)
        overlap = product(k_t, tl.trans(k_t), overlap, PRECISION)
    g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
    overlap *= pair_decay(g, g, False, C, COMPUTE)
    overlap = tl.where(i[:, None] > i[None, :], overlap, 0.0)
    mixed = overlap
    for r in range(1, C):
        is_row = (i == r)[:, None]
        weights = tl.sum(tl.where(is_row, overlap, 0.0), 0) * strength  # (C,) of the rows before, which are done
        mixed = tl.where(is_row, overlap - tl.sum(weights[:, None] * mixed, 0)[None, :], mixed)
    tl.store(mixing + ((c.to(tl.int64) * batch_heads + bh) * C + i[:, None]) * C + i[None, :], mixed)
    for v0 in range(0, V, BV):
        v_at = v0 + tl.arange(0, BV)
        v_in = v_at < V
        inside = t_in[:, None] & v_in[None, :]
        v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in).to(COMPUTE)  # (C, BV)
        v_t = product(-mixed, strength[:, None] * v_t, v_t, PRECISION)
        tl.store(errors + (row[:, None] * H + h) * V + v_at[None, :], v_t, inside)
    from_start = decay_of(query_decay(log_decay, resets, b, h, t, i, t_in, T, H, DECAY, False, COMPUTE))
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_in = k_at < K
        inside = t_in[:, None] & k_in[None, :]
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in).to(COMPUTE)  # (C, BK)
        k_t *= -from_start[:, None]
        k_t = product(-mixed, strength[:, None] * k_t, k_t, PRECISION)
        tl.store(reads + (row[:, None] * H + h) * K + k_at[None, :], k_t, inside)


@triton.jit
def pass_forward_kernel(
    k, beta, log_decay, resets, errors, reads, start, u, states, last, k_row, T, H, G, K, V, batch_heads,
    DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """u (B, T, H, V), `states` before the chunks (NC, B, H, K, V) and the `last` one; BV columns of a head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i, k_at, v_at = tl.arange(0, C), tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    k_in, v_in = k_at < K, v_at < V
    state_in = k_in[:, None] & v_in[None, :]
    head = bh.to(tl.int64) * K * V + k_at[:, None] * V + v_at[None, :]
    all_heads = tl.cast(batch_heads, tl.int64) * K * V  # numbers in the states of one time
    state = tl.zeros([BK, BV], COMPUTE)
    if start is not None:
        state += tl.load(start + head, state_in, 0.0)
    for c in range(tl.cdiv(T, C)):
        tl.store(states + c * all_heads + head, state, state_in)
        t = c * C + i
        t_in = t < T
        row = b.to(tl.int64) * T + t
        reads_at = (row[:, None] * H + h) * K + k_at[None, :]
        reads_t = tl.load(reads + reads_at, t_in[:, None] & k_in[None, :], 0.0)  # (C, BK)
        at, inside = (row[:, None] * H + h) * V + v_at[None, :], t_in[:, None] & v_in[None, :]
        u_t = product(reads_t, state, tl.load(errors + at, inside, 0.0), PRECISION)  # (C, BV)
        tl.store(u + at, u_t, inside)
        g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
        weight = decay_of(key_to_end(log_decay, resets, b, h, t, i, T, H, C, DECAY, COMPUTE))
        weight *= tl.load(beta + row * H + h, t_in, 0.0).to(COMPUTE)
        k_t = tl.load(
            k + row[None, :] * k_row + group * K + k_at[:, None], k_in[:, None] & t_in[None, :], 0.0
        )  # (BK, C)
        state = product(k_t, weight[:, None] * u_t, state * decay_of(tl.sum(g, 0)), PRECISION)
    tl.store(last + head, state, state_in)


@triton.jit
def pass_backward_kernel(
    q, k, dy, beta, log_decay, resets, mixing, local, dlast, dz, leaving, dstart, q_row, k_row, dy_row, T, H, G, K, V,
    batch_heads, DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """dz (B, T, H, V) and the gradients of the states after the chunks, `leaving`, and of the first, `dstart`.

    `local` is the part of dw that comes from the chunk's own outputs.
    """
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    group = h // (H // G)
    i, k_at, v_at = tl.arange(0, C), tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    k_in, v_in = k_at < K, v_at < V
    state_in = k_in[:, None] & v_in[None, :]
    head = bh.to(tl.int64) * K * V + k_at[:, None] * V + v_at[None, :]
    all_heads = tl.cast(batch_heads, tl.int64) * K * V  # numbers in the states of one time
    d_state = tl.load(dlast + head, state_in, 0.0).to(COMPUTE)
    chunks = tl.cdiv(T, C)
    for n in range(chunks):
        c = chunks - 1 - n
        tl.store(leaving + c * all_heads + head, d_state, state_in)
        t = c * C + i
        t_in = t < T
        row = b.to(tl.int64) * T + t
        at, inside = (row[:, None] * H + h) * V + v_at[None, :], t_in[:, None] & v_in[None, :]
        strength = tl.load(beta + row * H + h, t_in, 0.0).to(COMPUTE)
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in)  # (C, BK)
        to_end = decay_of(key_to_end(log_decay, resets, b, h, t, i, T, H, C, DECAY, COMPUTE))
        dw_t = product(k_t, d_state, tl.zeros([C, BV], COMPUTE), PRECISION) * to_end[:, None]
        dw_t += tl.load(local + at, inside, 0.0)
        mixed_at = ((tl.cast(c, tl.int64) * batch_heads + bh) * C + i[None, :]) * C + i[:, None]
        mixed = tl.load(mixing + mixed_at)  # (C, C) transposed
        dz_t = product(-mixed, strength[:, None] * dw_t, dw_t, PRECISION)
        tl.store(dz + at, dz_t, inside)
        g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
        from_start = decay_of(query_decay(log_decay, resets, b, h, t, i, t_in, T, H, DECAY, False, COMPUTE))
        q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in)  # (C, BK)
        dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in).to(COMPUTE)  # (C, BV)
        d_state *= decay_of(tl.sum(g, 0))
        d_state = product(tl.trans(q_t), from_start[:, None] * dy_t, d_state, PRECISION)
        d_state = product(tl.trans(k_t), -(from_start * strength)[:, None] * dz_t, d_state, PRECISION)
    tl.store(dstart + head, d_state, state_in)


class _Solved(NamedTuple):
    p: Problem  # the gated scan, with w for v
    beta: Tensor
    u: Tensor  # (B, T, H, V)
    mixing: Tensor  # (NC, B, H, C, C)
    states: Tensor  # (NC, B, H, K, V)
    last: Tensor  # (B, H, K, V)


def suits(inputs: Inputs, fewest: int) -> bool:
    """Whether it is the delta rule without decays per key, with states that fit and enough steps."""
    by_key = inputs.log_decay is not None and inputs.log_decay.dim() == 4
    half = all(x.element_size() == 2 for x in (inputs.q, inputs.k, inputs.v))
    largest = LARGEST_K if half else LARGEST_K // 2
    return inputs.beta is not None and not by_key and inputs.k.shape[3] <= largest and inputs.k.shape[1] >= fewest


def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """y (B, T, H, V) and the final state (B, H, K, V)."""
    solved = _solve(inputs)
    return triton_head.forward(solved.p, solved.states).to(inputs.v.dtype), solved.last


def backward(dy: Tensor, dstate: Tensor, inputs: Inputs) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v, beta, log_decay and h0."""
    p, beta, u, mixing, states, _ = _solve(inputs)
    T, H, G, _, _ = p.sizes
    q_row, k_row, w_row = p.strides
    dy, dy_row = rows(dy)
    dz, leaving, dh0 = torch.empty_like(u), torch.empty_like(states), torch.empty_like(states[0])
    grid, constants = _over_states(p)
    launch(
        pass_backward_kernel, grid, p.q, p.k, dy, beta, p.log_decay, p.resets, mixing,
        triton_head.values_gradient(p, dy, None), dstate.contiguous(), dz, leaving, dh0, q_row, k_row, dy_row, *p.sizes,
        p.batch * H, **constants,
    )  # fmt: skip
    dv = beta.unsqueeze(-1) * dz
    dq, dk, dlog_decay, _ = triton_head.keys_gradient(p, dy, states, leaving)
    reading = p._replace(q=p.k, strides=(k_row, k_row, w_row))
    dk_read, dk_read_of, dlog_read, _ = triton_head.keys_gradient(reading, -dv, states, None)
    dk = by_group(dk + dk_read + dk_read_of, G)
    # a step does not read its own w: take that pair out, of both sums
    own = (dv * p.v).sum(-1).view(p.batch, T, G, H // G).sum(-1, keepdim=True)  # (B, T, G, 1)
    dk += 2 * own * p.k
    if dlog_decay is not None and dlog_read is not None:
        dlog_decay += dlog_read
    return by_group(dq, G), dk, dv, (dz * u).sum(-1), dlog_decay, dh0


def _solve(inputs: Inputs) -> _Solved:
    """Compute everything before the outputs, in float64 if any input is float64."""
    dtype = compute_dtype(*inputs)
    q, k, v = (x.to(dtype) if dtype == torch.float64 else x for x in (inputs.q, inputs.k, inputs.v))
    p = problem(GatedInputs(q, k, v, inputs.log_decay, inputs.h0, None, inputs.resets))
    p = p._replace(chunk=min(p.chunk, CHUNK))
    T, H, _, K, V = p.sizes
    beta = plain(inputs.beta)
    assert beta is not None
    mixing = v.new_empty(p.chunks, p.batch, H, p.chunk, p.chunk, dtype=dtype)
    errors, u = (v.new_empty(p.batch, T, H, V, dtype=dtype) for _ in range(2))
    reads = v.new_empty(p.batch, T, H, K, dtype=dtype)
    states, last = v.new_empty(p.chunks, p.batch, H, K, V, dtype=dtype), v.new_empty(p.batch, H, K, V, dtype=dtype)
    grid, constants = _over_states(p)
    launch(
        solve_kernel, (p.batch * H, p.chunks), p.k, p.v, beta, p.log_decay, p.resets, mixing, errors, reads,
        *p.strides[1:], *p.sizes, p.batch * H, **{**constants, "BK": tile(K, 64), "BV": tile(V, 64), "num_stages": 2},
    )  # fmt: skip
    launch(
        pass_forward_kernel, grid, p.k, beta, p.log_decay, p.resets, errors, reads, plain(inputs.h0), u, states, last,
        p.strides[1], *p.sizes, p.batch * H, **constants,
    )  # fmt: skip
    w = beta.unsqueeze(-1) * u
    return _Solved(p._replace(v=w, strides=(*p.strides[:2], H * V)), beta, u, mixing, states, last)


def _over_states(p: Problem) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid of programs, each with some columns of a state, and their compile-time constants."""
    _, H, _, K, V = p.sizes
    # Three TF32 products need several copies of a state's columns. With 256 keys and 32 columns, a thread has too few
    # registers.
    BV = tile(V, 32 if p.precision == HALF and K <= 128 else 16)
    stages = 2 if p.precision == HALF else 1  # prefetched float32 tiles need registers
    constants = {**p.constants, "BK": tile(K, LARGEST_K), "BV": BV, "num_warps": 8, "num_stages": stages}
    constants["PRECISION"] = HALF_STATE if p.precision == HALF else p.precision
    return (p.batch * H, triton.cdiv(V, BV)), constants
