# mypy: disable-error-code="no-untyped-def"
"""Triton kernels of the gated scan with one decay per head, or none: outputs and gradients of a chunk.

They take the state before the chunk, and in the backward pass the gradient of the state after it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ssm_kernels.gated_scan.triton_states import LOWEST, Problem, decay_of, forgotten, head_decay
from ssm_kernels.native.triton_launch import PROGRAMS, launch, rows, tile
from ssm_kernels.native.triton_tiles import linear, load_rows, product


@triton.jit
def pair_decay(g, g_query, EXCLUSIVE: tl.constexpr, C: tl.constexpr, COMPUTE: tl.constexpr):
    """(C, C) decay from token s (column) to token t (row), 0 for s > t.

    Differences of float32 sums are not precise after strong decays. So the sums are in float64 and rounded once here.

    Args:
        g: log decays (C,).
        g_query: log decay of a token's own step for its query (C,): g, or only resets if EXCLUSIVE.
    """
    i = tl.arange(0, C)
    total = tl.cumsum(g.to(tl.float64), 0)
    if EXCLUSIVE:
        query = total - g.to(tl.float64) + g_query.to(tl.float64)
        mask = i[:, None] > i[None, :]
    else:
        query = total
        mask = i[:, None] >= i[None, :]
    if tl.float64 == COMPUTE:
        between = query[:, None] - total[None, :]
    else:  # each sum is two float32 numbers, so the (C, C) differences are precise without float64
        query_high, total_high = query.to(tl.float32), total.to(tl.float32)
        query_low = (query - query_high.to(tl.float64)).to(tl.float32)
        total_low = (total - total_high.to(tl.float64)).to(tl.float32)
        between = (query_high[:, None] - total_high[None, :]) + (query_low[:, None] - total_low[None, :])
    return tl.where(mask, decay_of(tl.where(mask, between, 0.0)), 0.0)


@triton.jit
def query_decay(log_decay, resets, b, h, t, i, t_in, T, H, DECAY, EXCLUSIVE: tl.constexpr, COMPUTE: tl.constexpr):
    """(C,) log decay from the chunk's start to each query. If EXCLUSIVE, without the query's own step."""
    if EXCLUSIVE:
        past = head_decay(log_decay, resets, b, h, t - 1, t_in & (i > 0), T, H, DECAY, COMPUTE)
        return tl.cumsum(past, 0) + forgotten(resets, b, t, t_in, T, COMPUTE)
    else:
        return tl.cumsum(head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE), 0)


@triton.jit
def key_to_end(log_decay, resets, b, h, t, i, T, H, C: tl.constexpr, DECAY: tl.constexpr, COMPUTE: tl.constexpr):
    """(C,) log decay from each key to the chunk's end."""
    later = (i < C - 1) & (t + 1 < T)
    return tl.cumsum(head_decay(log_decay, resets, b, h, t + 1, later, T, H, DECAY, COMPUTE), 0, reverse=True)


@triton.jit
def head_forward_kernel(
    q, k, v, log_decay, bonus, resets, states, y, q_row, k_row, v_row, T, H, G, K, V, batch_heads,
    DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """y = (decay * q k^T) v + decay * q state, (C, BV) for one chunk and head."""
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
    state = states + (c.to(tl.int64) * batch_heads + bh) * K * V
    scores = tl.zeros([C, C], COMPUTE)
    out = tl.zeros([C, BV], COMPUTE)
    own = tl.zeros([C], COMPUTE)  # q . (bonus * k) of each token
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_in = k_at < K
        q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in)  # (C, BK)
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in)  # (C, BK)
        s = tl.load(state + k_at[:, None] * V + v_at[None, :], k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
        scores = product(q_t, tl.trans(k_t), scores, PRECISION)
        out = product(q_t, s, out, PRECISION)
        if bonus is not None:
            u = tl.load(bonus + h * K + k_at, k_in, 0.0).to(COMPUTE)
            own += tl.sum(q_t.to(COMPUTE) * k_t.to(COMPUTE) * u[None, :], 1)
    g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
    g_query = forgotten(resets, b, t, t_in, T, COMPUTE)
    from_start = query_decay(log_decay, resets, b, h, t, i, t_in, T, H, DECAY, bonus is not None, COMPUTE)
    v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in)  # (C, BV)
    weights = scores * pair_decay(g, g_query, bonus is not None, C, COMPUTE)
    out = product(weights, v_t, out * decay_of(from_start)[:, None], PRECISION)
    if bonus is not None:
        out += own[:, None] * v_t.to(COMPUTE)
    tl.store(y + (row[:, None] * H + h) * V + v_at[None, :], out.to(y.dtype.element_ty), t_in[:, None] & v_in[None, :])


@triton.jit
def head_values_kernel(
    q, k, dy, log_decay, bonus, resets, leaving, dv, q_row, k_row, dy_row, T, H, G, K, V, batch_heads,
    DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """dv = (decay * q k^T)^T dy + decay * k leaving, (C, BV) for one chunk and head.

    `leaving` is the gradient of the state after the chunk. If it is None, the second term is omitted.
    """
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
    state = (c.to(tl.int64) * batch_heads + bh) * K * V
    scores = tl.zeros([C, C], COMPUTE)
    out = tl.zeros([C, BV], COMPUTE)
    own = tl.zeros([C], COMPUTE)
    for k0 in range(0, K, BK):
        k_at = k0 + tl.arange(0, BK)
        k_in = k_at < K
        q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in)  # (C, BK)
        k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in)  # (C, BK)
        scores = product(q_t, tl.trans(k_t), scores, PRECISION)
        if leaving is not None:
            at = state + k_at[:, None] * V + v_at[None, :]
            s = tl.load(leaving + at, k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
            out = product(k_t, s, out, PRECISION)
        if bonus is not None:
            u = tl.load(bonus + h * K + k_at, k_in, 0.0).to(COMPUTE)
            own += tl.sum(q_t.to(COMPUTE) * k_t.to(COMPUTE) * u[None, :], 1)
    g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
    g_query = forgotten(resets, b, t, t_in, T, COMPUTE)
    to_end = key_to_end(log_decay, resets, b, h, t, i, T, H, C, DECAY, COMPUTE)
    dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in)  # (C, BV)
    weights = scores * pair_decay(g, g_query, bonus is not None, C, COMPUTE)
    out = product(tl.trans(weights), dy_t, out * decay_of(to_end)[:, None], PRECISION)
    if bonus is not None:
        out += own[:, None] * dy_t.to(COMPUTE)
    tl.store(
        dv + (row[:, None] * H + h) * V + v_at[None, :], out.to(dv.dtype.element_ty), t_in[:, None] & v_in[None, :]
    )


@triton.jit
def head_keys_kernel(
    q, k, v, dy, log_decay, bonus, resets, states, leaving, dq, dk, dg, du, q_row, k_row, v_row, dy_row, T, H, G, K, V,
    batch_heads, heads, DECAY: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """dq and dk, summed over `heads` heads of a group, and per head this key tile's contributions to dg and du.

    For a pair of tokens (t, s), let w be the product of its decay, score and gradient. The pair adds w to the gradient
    of every log decay between the tokens. So the gradient at step r is the sum of w over t >= r > s. It is computed
    from sums over rows and columns. The diagonal has no decay between its tokens and is excluded: its large values
    would cancel and hide the small values after strong decays.
    """
    blocks = H // heads  # number of blocks of heads
    b, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    c = tl.program_id(2)
    group = block * heads // (H // G)
    i = tl.arange(0, C)
    t = c * C + i
    t_in = t < T
    row = b.to(tl.int64) * T + t
    k_at = tl.program_id(1) * BK + tl.arange(0, BK)
    k_in = k_at < K
    q_t = load_rows(q, row, q_row, group * K, k_at, t_in, k_in)  # (C, BK)
    k_t = load_rows(k, row, k_row, group * K, k_at, t_in, k_in)  # (C, BK)
    q_sum = tl.zeros([C, BK], COMPUTE)
    k_sum = tl.zeros([C, BK], COMPUTE)
    for h in range(block * heads, block * heads + heads):
        bh = b * H + h
        state = (c.to(tl.int64) * batch_heads + bh) * K * V
        pairs = tl.zeros([C, C], COMPUTE)  # dy v^T
        dq_t = tl.zeros([C, BK], COMPUTE)
        dk_t = tl.zeros([C, BK], COMPUTE)
        through = tl.zeros([BK], COMPUTE)  # state . leaving
        own = tl.zeros([C], COMPUTE)  # dy . v of each token
        for v0 in range(0, V, BV):
            v_at = v0 + tl.arange(0, BV)
            v_in = v_at < V
            v_t = load_rows(v, row, v_row, h * V, v_at, t_in, v_in)  # (C, BV)
            dy_t = load_rows(dy, row, dy_row, h * V, v_at, t_in, v_in)  # (C, BV)
            at = state + k_at[:, None] * V + v_at[None, :]
            before = tl.load(states + at, k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
            pairs = product(dy_t, tl.trans(v_t), pairs, PRECISION)
            dq_t = product(dy_t, tl.trans(before), dq_t, PRECISION)
            if leaving is not None:
                after = tl.load(leaving + at, k_in[:, None] & v_in[None, :], 0.0)  # (BK, BV)
                dk_t = product(v_t, tl.trans(after), dk_t, PRECISION)
                through += tl.sum(before * after, 1)
            if bonus is not None:
                own += tl.sum(dy_t.to(COMPUTE) * v_t.to(COMPUTE), 1)
        g = head_decay(log_decay, resets, b, h, t, t_in, T, H, DECAY, COMPUTE)
        g_query = forgotten(resets, b, t, t_in, T, COMPUTE)
        from_start = query_decay(log_decay, resets, b, h, t, i, t_in, T, H, DECAY, bonus is not None, COMPUTE)
        to_end = key_to_end(log_decay, resets, b, h, t, i, T, H, C, DECAY, COMPUTE)
        pairs *= pair_decay(g, g_query, bonus is not None, C, COMPUTE)
        dq_t *= decay_of(from_start)[:, None]
        dk_t *= decay_of(to_end)[:, None]
        if dg is not None:
            entered = tl.sum(q_t.to(COMPUTE) * dq_t, 1)  # (C,) pairs with the state before the chunk
            left = tl.sum(k_t.to(COMPUTE) * dk_t, 1)  # (C,) with the gradient of the state after it
            w = pairs * product(q_t, tl.trans(k_t), tl.zeros([C, C], COMPUTE), PRECISION)
            later = (i < C - 1) & (t + 1 < T)
            if bonus is not None:  # the query's own decay does not count, so adjacent tokens have no decay between them
                w = tl.where(i[:, None] > i[None, :] + 1, w, 0.0)
                queries = tl.where(i > 0, entered, 0.0) + tl.sum(w, 1)
                following = forgotten(resets, b, t + 1, later, T, COMPUTE)
            else:
                w = tl.where(i[:, None] > i[None, :], w, 0.0)
                queries = entered + tl.sum(w, 1)
                following = head_decay(log_decay, resets, b, h, t + 1, later, T, H, DECAY, COMPUTE)
            # No gradient passes a decay of 0. Terms beyond it would have to cancel, so they are not summed.
            keep = tl.where(following <= LOWEST, 0.0, 1.0).to(COMPUTE)
            _, share = tl.associative_scan((keep, queries - tl.sum(w, 0)), 0, linear, reverse=True)
            if bonus is not None:
                share -= queries
            share += tl.cumsum(left, 0) - left
            share += decay_of(tl.sum(g, 0)) * tl.sum(through, 0)
            part = tl.program_id(1).to(tl.int64) * (batch_heads // H) * T  # one part per tile of keys
            tl.store(dg + (part + row) * H + h, tl.where(g <= LOWEST, 0.0, share), t_in)
        dq_t = product(pairs, k_t, dq_t, PRECISION)
        dk_t = product(tl.trans(pairs), q_t, dk_t, PRECISION)
        if bonus is not None:
            u = tl.load(bonus + h * K + k_at, k_in, 0.0).to(COMPUTE)
            dq_t += own[:, None] * k_t.to(COMPUTE) * u[None, :]
            dk_t += own[:, None] * q_t.to(COMPUTE) * u[None, :]
            du_t = tl.sum(own[:, None] * q_t.to(COMPUTE) * k_t.to(COMPUTE), 0)
            tl.store(du + (c.to(tl.int64) * batch_heads + bh) * K + k_at, du_t, k_in)
        q_sum += dq_t
        k_sum += dk_t
    out = (row[:, None] * blocks + block) * K + k_at[None, :]
    tl.store(dq + out, q_sum.to(dq.dtype.element_ty), t_in[:, None] & k_in[None, :])
    tl.store(dk + out, k_sum.to(dk.dtype.element_ty), t_in[:, None] & k_in[None, :])


def heads_at_once(p: Problem) -> int:
    """Number of heads of a group that one program sums over.

    More heads write fewer partial sums. The number is limited so that there are enough programs for the GPU.
    """
    _, H, G, K, _ = p.sizes
    share = H // G
    programs = p.batch * H * p.chunks * triton.cdiv(K, tile(K, 64))
    most = max(1, programs // PROGRAMS)
    return max(n for n in range(1, share + 1) if share % n == 0 and n <= most)


def forward(p: Problem, states: Tensor) -> Tensor:
    """y (B, T, H, V) from the states before the chunks (NC, B, H, K, V)."""
    T, H, _, K, V = p.sizes
    BK, BV = tile(K, 32), tile(V, 64)
    y = p.v.new_empty(p.batch, T, H, V)
    launch(
        head_forward_kernel, (p.batch * H, triton.cdiv(V, BV), p.chunks), p.q, p.k, p.v, p.log_decay, p.bonus, p.resets,
        states, y, *p.strides, *p.sizes, p.batch * H, BK=BK, BV=BV, **p.constants,
    )  # fmt: skip
    return y


def values_gradient(p: Problem, dy: Tensor, leaving: Tensor | None) -> Tensor:
    """dv (B, T, H, V). Without `leaving`, only the gradients through the chunk's own outputs."""
    T, H, _, K, V = p.sizes
    BK, BV = tile(K, 32), tile(V, 64)
    dy, dy_row = rows(dy)
    q_row, k_row, _ = p.strides
    dv = p.v.new_empty(p.batch, T, H, V)
    launch(
        head_values_kernel, (p.batch * H, triton.cdiv(V, BV), p.chunks), p.q, p.k, dy, p.log_decay, p.bonus, p.resets,
        leaving, dv, q_row, k_row, dy_row, *p.sizes, p.batch * H, BK=BK, BV=BV, **p.constants,
    )  # fmt: skip
    return dv


def keys_gradient(
    p: Problem, dy: Tensor, states: Tensor, leaving: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """dq, dk (B, T, parts, K) per part of the heads, dlog_decay (B, T, H) and dbonus (H, K).

    Without `leaving`, only the gradients through the chunk's own outputs.
    """
    T, H, _, K, V = p.sizes
    BK, BV = tile(K, 64), tile(V, 32)  # larger tiles do not fit into registers
    dy, dy_row = rows(dy)
    heads = heads_at_once(p)
    blocks, tiles = H // heads, triton.cdiv(K, BK)
    dq, dk = (p.v.new_empty(p.batch, T, blocks, K, dtype=p.dtype) for _ in range(2))
    dg = None if p.log_decay is None else p.v.new_empty(tiles, p.batch, T, H, dtype=p.dtype)
    du = None if p.bonus is None else p.v.new_empty(p.chunks, p.batch, H, K, dtype=p.dtype)
    launch(
        head_keys_kernel, (p.batch * blocks, tiles, p.chunks), p.q, p.k, p.v, dy, p.log_decay, p.bonus, p.resets,
        states, leaving, dq, dk, dg, du, *p.strides, dy_row, *p.sizes, p.batch * H, heads, BK=BK, BV=BV, num_warps=8,
        **p.constants,
    )  # fmt: skip
    return dq, dk, None if dg is None else dg.sum(0), None if du is None else du.sum((0, 1))


def backward(
    p: Problem, dy: Tensor, states: Tensor, leaving: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """dq, dk (B, T, parts, K) per part of the heads, dv, dlog_decay (B, T, H) and dbonus (H, K)."""
    dv = values_gradient(p, dy, leaving)
    dq, dk, dlog_decay, dbonus = keys_gradient(p, dy, states, leaving)
    return dq, dk, dv, dlog_decay, dbonus
