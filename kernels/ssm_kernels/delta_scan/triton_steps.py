# mypy: disable-error-code="no-untyped-def"
"""The delta scan step by step: a program goes through time with BV columns of one head's state in registers.

Columns (values) are independent: a step reads and writes along the keys, and a program holds all keys (BK >= K). The
gradients of q, k, beta, a, b and decays are sums over columns. Each program writes its part, and the parts are added
later in a fixed order. Decays are used directly, so every decay is safe.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_row(x, row, width, start, i, inside, COMPUTE: tl.constexpr):
    """Elements start + i of one step's row of x with stride `width`; 0 outside the mask."""
    return tl.load(x + row * width + start + i, inside, 0.0).to(COMPUTE)


@triton.jit
def forget(state, resets, row):
    """The state before a step: zeros at a reset."""
    if resets is None:
        return state
    else:
        return tl.where(tl.load(resets + row) != 0, 0.0, state)


@triton.jit
def decay_of(log_decay, row, h, k, k_in, H, K, DECAY: tl.constexpr, COMPUTE: tl.constexpr):
    """a_t of one step and head, (BK, 1): 1 without a decay."""
    if DECAY == "key":
        return tl.exp(load_row(log_decay, row * H, K, h * K, k, k_in, COMPUTE))[:, None]
    elif DECAY == "head":
        return tl.exp(load_row(log_decay, row, H, h, 0 * k, k_in, COMPUTE))[:, None]
    else:
        return tl.full(k.shape, 1.0, COMPUTE)[:, None]


@triton.jit
def along_keys(x, state):
    """x^T S: (BK,) and (BK, BV) -> (BV,)."""
    return tl.sum(x[:, None] * state, 0)


@triton.jit
def along_values(state, x):
    """S x: (BK, BV) and (BV,) -> (BK,)."""
    return tl.sum(state * x[None, :], 1)


@triton.jit
def next_state(
    state, k, v, beta, log_decay, a, b, row, h, group, i, j, k_row, v_row, a_row, b_row, H, K, V, DECAY: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """S_t (BK, BV) from the state before step t; keys i, values j."""
    k_in = i < K
    k_t = load_row(k, row, k_row, group * K, i, k_in, COMPUTE)
    v_t = load_row(v, row, v_row, h * V, j, j < V, COMPUTE)
    decayed = decay_of(log_decay, row, h, i, k_in, H, K, DECAY, COMPUTE) * state
    if beta is not None:
        step = tl.load(beta + row * H + h).to(COMPUTE)
        return decayed + k_t[:, None] * (step * (v_t - along_keys(k_t, decayed)))[None, :]
    else:
        read = along_keys(load_row(a, row, a_row, h * K, i, k_in, COMPUTE), state)
        b_t = load_row(b, row, b_row, h * K, i, k_in, COMPUTE)
        return decayed + b_t[:, None] * read[None, :] + k_t[:, None] * v_t[None, :]


@triton.jit
def forward_kernel(
    q, k, v, beta, log_decay, start, a, b, resets, y, states, last, q_row, k_row, v_row, a_row, b_row, T, H, G, K, V,
    batch_heads, C, DECAY: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """y (B, T, H, V), `last` (B, H, K, V) and, if not None, `states` (NC, B, H, K, V) before every C steps."""
    bh = tl.program_id(0)
    batch, h = bh // H, bh % H
    group = h // (H // G)
    i, j = tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    in_state, state_in = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    head = bh.to(tl.int64) * K * V
    all_heads = tl.cast(batch_heads, tl.int64) * K * V  # numbers in the states of one time
    state = tl.zeros([BK, BV], COMPUTE)
    if start is not None:
        state += tl.load(start + head + in_state, state_in, 0.0)
    for c in range(tl.cdiv(T, C)):
        if states is not None:
            tl.store(states + c * all_heads + head + in_state, state, state_in)
        for t in range(c * C, tl.minimum(T, c * C + C)):
            row = batch.to(tl.int64) * T + t
            state = forget(state, resets, row)
            state = next_state(
                state, k, v, beta, log_decay, a, b, row, h, group, i, j, k_row, v_row, a_row, b_row, H, K, V, DECAY,
                COMPUTE,
            )  # fmt: skip
            out = along_keys(load_row(q, row, q_row, group * K, i, i < K, COMPUTE), state)
            tl.store(y + row * H * V + h * V + j, out.to(y.dtype.element_ty), j < V)
    tl.store(last + head + in_state, state, state_in)


@triton.jit
def backward_kernel(
    q, k, v, beta, log_decay, a, b, resets, dy, dlast, states, scratch, dq, dk, dv, dbeta, dlog_decay, dh0, da, db,
    q_row, k_row, v_row, a_row, b_row, dy_row, T, H, G, K, V, batch_heads, C, DECAY: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """All gradients, chunk by chunk from the last. The states of a chunk are computed again into `scratch`.

    Parts per block of columns, which are summed later: dq, dk, da, db (B, T, H, blocks, K), dbeta (B, T, H, blocks),
    and dlog_decay in one of these shapes. `scratch` is (C, B, H, K, V): the state before each step.
    """
    bh = tl.program_id(0)
    batch, h = bh // H, bh % H
    group = h // (H // G)
    i, j = tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    k_in, v_in = i < K, j < V
    in_state, state_in = i[:, None] * V + j[None, :], k_in[:, None] & v_in[None, :]
    head = bh.to(tl.int64) * K * V
    all_heads = tl.cast(batch_heads, tl.int64) * K * V  # numbers in the states of one time
    d_state = tl.load(dlast + head + in_state, state_in, 0.0).to(COMPUTE)  # of S_t, without the part from y_t
    chunks = tl.cdiv(T, C)
    for n in range(chunks):
        c = chunks - 1 - n
        first = c * C
        count = tl.minimum(T - first, C)
        state = tl.load(states + c * all_heads + head + in_state, state_in, 0.0)
        for s in range(count):
            row = batch.to(tl.int64) * T + first + s
            state = forget(state, resets, row)
            tl.store(scratch + s * all_heads + head + in_state, state, state_in)
            state = next_state(
                state, k, v, beta, log_decay, a, b, row, h, group, i, j, k_row, v_row, a_row, b_row, H, K, V, DECAY,
                COMPUTE,
            )  # fmt: skip
        tl.debug_barrier()  # another thread may load what this thread stored
        for m in range(count):
            s = count - 1 - m
            row = batch.to(tl.int64) * T + first + s
            part = (row * H + h) * tl.num_programs(1) + tl.program_id(1)
            before = tl.load(scratch + s * all_heads + head + in_state, state_in, 0.0)
            q_t = load_row(q, row, q_row, group * K, i, k_in, COMPUTE)
            k_t = load_row(k, row, k_row, group * K, i, k_in, COMPUTE)
            v_t = load_row(v, row, v_row, h * V, j, v_in, COMPUTE)
            dy_t = load_row(dy, row, dy_row, h * V, j, v_in, COMPUTE)
            decay = decay_of(log_decay, row, h, i, k_in, H, K, DECAY, COMPUTE)
            decayed = decay * before
            d_state += q_t[:, None] * dy_t[None, :]  # of S_t, all of it
            dq_t = along_values(decayed, dy_t)
            if beta is not None:
                # S_t = decayed + k w^T, w = beta (v - decayed^T k)
                step = tl.load(beta + row * H + h).to(COMPUTE)
                error = v_t - along_keys(k_t, decayed)
                w = step * error
                dw = along_keys(k_t, d_state)
                dv_t = step * dw
                dq_t += k_t * tl.sum(w * dy_t, 0)
                dk_t = tl.sum(d_state * w[None, :] - decayed * dv_t[None, :], 1)
                tl.store(dbeta + part, tl.sum(dw * error, 0))
                d_state -= k_t[:, None] * dv_t[None, :]
                d_decay = tl.sum(d_state * decayed, 1)
                d_state *= decay
            else:
                # S_t = decayed + b r^T + k v^T, r = S_(t-1)^T a
                a_t = load_row(a, row, a_row, h * K, i, k_in, COMPUTE)
                b_t = load_row(b, row, b_row, h * K, i, k_in, COMPUTE)
                read = along_keys(a_t, before)
                dread = along_keys(b_t, d_state)
                dv_t = along_keys(k_t, d_state)
                dq_t += b_t * tl.sum(read * dy_t, 0) + k_t * tl.sum(v_t * dy_t, 0)
                dk_t = along_values(d_state, v_t)
                tl.store(da + part * K + i, along_values(before, dread), k_in)
                tl.store(db + part * K + i, along_values(d_state, read), k_in)
                d_decay = tl.sum(d_state * decayed, 1)
                d_state = decay * d_state + a_t[:, None] * dread[None, :]
            d_state = forget(d_state, resets, row)
            tl.store(dq + part * K + i, dq_t, k_in)
            tl.store(dk + part * K + i, dk_t, k_in)
            tl.store(dv + row * H * V + h * V + j, dv_t.to(dv.dtype.element_ty), v_in)
            if DECAY == "key":
                tl.store(dlog_decay + part * K + i, d_decay, k_in)
            elif DECAY == "head":
                tl.store(dlog_decay + part, tl.sum(d_decay, 0))
        tl.debug_barrier()  # before the next chunk overwrites the states
    tl.store(dh0 + head + in_state, d_state, state_in)
