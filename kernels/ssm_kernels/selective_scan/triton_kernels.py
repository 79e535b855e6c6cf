# mypy: disable-error-code="no-untyped-def"
"""Mamba-1's scan in tiles of steps, states and channels (BT, BN, BD), from the softplus of dt to the gate z.

A tile is in registers. The state (BN, BD) is carried from tile to tile of a segment. States are stored as (..., N, D).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ssm_kernels.native.triton_tiles import linear, linear_split

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softplus(x):
    """log(1 + e^x), with full relative precision if e^x is small."""
    e = tl.exp(-tl.abs(x))
    w = 1.0 + e
    rest = tl.where(w == 1.0, 1.0, w - 1.0)
    return tl.maximum(x, 0.0) + tl.where(w == 1.0, e, tl.log(w) * (e / rest))


@triton.jit
def sigmoid(x):
    """1 / (1 + e^-x), without overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def load_rates(A, d, n, D, N, COMPUTE: tl.constexpr):
    """A (BN, BD) with 0 instead of -inf, and a mask of -inf, which is a decay of exactly 0 at any step."""
    at = d[None, :].to(tl.int64) * N + n[:, None]
    rates = tl.load(A + at, (d < D)[None, :] & (n < N)[:, None], 0.0).to(COMPUTE)
    forgets = rates == float("-inf")
    return tl.where(forgets, 0.0, rates), forgets


@triton.jit
def load_steps(dt, dt_bias, row, d, inside, dt_row, D, SOFTPLUS: tl.constexpr, COMPUTE: tl.constexpr):
    """delta (BT, BD), 0 outside the mask, and dt + dt_bias."""
    x = tl.load(dt + row * dt_row + d[None, :], inside, 0.0).to(COMPUTE)
    if dt_bias is not None:
        x += tl.load(dt_bias + d, d < D, 0.0).to(COMPUTE)[None, :]
    delta = softplus(x) if SOFTPLUS else x
    return tl.where(inside, delta, 0.0), x


@triton.jit
def decays(delta, rates, forgets, resets, b, t, T):
    """(BT, BN, BD): exp(delta A); 0 at resets and where A is -inf, 1 beyond the sequence."""
    a = tl.exp2(delta[:, None, :] * (rates * LOG2_E)[None, :, :])
    a = tl.where(forgets[None, :, :], 0.0, a)
    there = t < T
    if resets is not None:
        reset = tl.load(resets + b.to(tl.int64) * T + t, there, 0) != 0
        a = tl.where(reset[:, None, None], 0.0, a)
    return tl.where(there[:, None, None], a, 1.0)


@triton.jit
def row_of(x, i, row):
    """One step of a tile (BT, BN, BD)."""
    return tl.sum(tl.where((i == row)[:, None, None], x, 0.0), 0)


@triton.jit
def selective_forward_kernel(
    u, dt, A, B, C, skip, dt_bias, z, resets, start, y, saved, last, total, u_row, dt_row, B_row, C_row, z_row, T, D, N,
    tiles, each, SOFTPLUS: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """y (B, T, D), `last` (B, N, D) and the states before tiles, `saved` (tiles, B, N, D), from `start` (S, B, N, D).

    With `total`, the kernel only computes how each segment maps a state, in `total` and `last` (S, B, N, D).
    """
    batch, segment = tl.program_id(2), tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, BN)
    i = tl.arange(0, BT)
    d_in, n_in = d < D, n < N
    state_in = n_in[:, None] & d_in[None, :]
    in_state = n[:, None].to(tl.int64) * D + d[None, :]
    segment_at = (segment.to(tl.int64) * tl.num_programs(2) + batch) * N * D + in_state
    rates, forgets = load_rates(A, d, n, D, N, COMPUTE)
    state = tl.zeros([BN, BD], COMPUTE)
    through = tl.full([BN, BD], 1.0, COMPUTE)
    if start is not None:
        state += tl.load(start + segment_at, state_in, 0.0)
    first = segment * each
    for number in range(tl.minimum(tiles - first, each)):
        tile = first + number
        t = tile * BT + i
        t_in = t < T
        row = (batch.to(tl.int64) * T + t)[:, None]
        inside = t_in[:, None] & d_in[None, :]
        delta, _ = load_steps(dt, dt_bias, row, d, inside, dt_row, D, SOFTPLUS, COMPUTE)
        u_t = tl.load(u + row * u_row + d[None, :], inside, 0.0).to(COMPUTE)  # (BT, BD)
        B_t = tl.load(B + row * B_row + n[None, :], t_in[:, None] & n_in[None, :], 0.0).to(COMPUTE)  # (BT, BN)
        a = decays(delta, rates, forgets, resets, batch, t, T)
        added = (delta * u_t)[:, None, :] * B_t[:, :, None]
        decay, h = tl.associative_scan((a, added), 0, linear)
        h += decay * state[None, :, :]
        if total is not None:
            through *= row_of(decay, i, BT - 1)
        else:
            if saved is not None:
                at = (tile.to(tl.int64) * tl.num_programs(2) + batch) * N * D + in_state
                tl.store(saved + at, state, state_in)
            C_t = tl.load(C + row * C_row + n[None, :], t_in[:, None] & n_in[None, :], 0.0).to(COMPUTE)  # (BT, BN)
            out = tl.sum(h * C_t[:, :, None], 1)  # (BT, BD)
            if skip is not None:
                out += tl.load(skip + d, d_in, 0.0).to(COMPUTE)[None, :] * u_t
            if z is not None:
                z_t = tl.load(z + row * z_row + d[None, :], inside, 0.0).to(COMPUTE)
                out *= z_t * sigmoid(z_t)
            tl.store(y + row * D + d[None, :], out.to(y.dtype.element_ty), inside)
        state = row_of(h, i, BT - 1)
    if total is not None:
        tl.store(last + segment_at, state, state_in)
        tl.store(total + segment_at, through, state_in)
    elif segment == tl.num_programs(1) - 1:
        tl.store(last + batch.to(tl.int64) * N * D + in_state, state, state_in)


@triton.jit
def selective_carry_kernel(
    dt, A, C, dt_bias, z, dy, resets, last, total, dt_row, C_row, z_row, dy_row, T, D, N, tiles, each,
    SOFTPLUS: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """How each segment maps w_t = a_t (C_t dy_t + w_(t+1)), which step t passes back: `total` and `last`."""
    batch, segment = tl.program_id(2), tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, BN)
    i = tl.arange(0, BT)
    d_in, n_in = d < D, n < N
    state_in = n_in[:, None] & d_in[None, :]
    segment_at = (segment.to(tl.int64) * tl.num_programs(2) + batch) * N * D + n[:, None].to(tl.int64) * D + d[None, :]
    rates, forgets = load_rates(A, d, n, D, N, COMPUTE)
    w = tl.zeros([BN, BD], COMPUTE)
    through = tl.full([BN, BD], 1.0, COMPUTE)
    first = segment * each
    count = tl.minimum(tiles - first, each)
    for number in range(count):
        t = (first + count - 1 - number) * BT + i
        t_in = t < T
        row = (batch.to(tl.int64) * T + t)[:, None]
        inside = t_in[:, None] & d_in[None, :]
        delta, _ = load_steps(dt, dt_bias, row, d, inside, dt_row, D, SOFTPLUS, COMPUTE)
        C_t = tl.load(C + row * C_row + n[None, :], t_in[:, None] & n_in[None, :], 0.0).to(COMPUTE)  # (BT, BN)
        dy_t = tl.load(dy + row * dy_row + d[None, :], inside, 0.0).to(COMPUTE)  # (BT, BD)
        if z is not None:
            z_t = tl.load(z + row * z_row + d[None, :], inside, 0.0).to(COMPUTE)
            dy_t *= z_t * sigmoid(z_t)
        a = decays(delta, rates, forgets, resets, batch, t, T)
        decay, sums = tl.associative_scan((a, a * dy_t[:, None, :] * C_t[:, :, None]), 0, linear, reverse=True)
        decay = row_of(decay, i, 0)
        w = decay * w + row_of(sums, i, 0)
        through *= decay
    tl.store(last + segment_at, w, state_in)
    tl.store(total + segment_at, through, state_in)


@triton.jit
def selective_backward_kernel(
    u, dt, A, B, C, skip, dt_bias, z, dy, resets, saved, start, du, ddt, dA, dB, dC, dskip, dbias, dz, dh0, u_row,
    dt_row, B_row, C_row, z_row, dy_row, T, D, N, tiles, each, SOFTPLUS: tl.constexpr, BT: tl.constexpr,
    BN: tl.constexpr, BD: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """All gradients, from the states before the tiles and w = `start` (S, B, N, D) after the segments.

    These parts are summed later, in a fixed order: dB and dC (blocks, B, T, N) per block of channels; dA (S * B, N, D),
    dskip and dbias (S * B, D) per segment.
    """
    batch, segment = tl.program_id(2), tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, BN)
    i = tl.arange(0, BT)
    d_in, n_in = d < D, n < N
    state_in = n_in[:, None] & d_in[None, :]
    in_state = n[:, None].to(tl.int64) * D + d[None, :]
    part = segment.to(tl.int64) * tl.num_programs(2) + batch
    rates, forgets = load_rates(A, d, n, D, N, COMPUTE)
    w = tl.load(start + part * N * D + in_state, state_in, 0.0)
    dA_sum = tl.zeros([BN, BD], COMPUTE)
    dskip_sum, dbias_sum = tl.zeros([BD], COMPUTE), tl.zeros([BD], COMPUTE)
    first = segment * each
    count = tl.minimum(tiles - first, each)
    for number in range(count):
        tile = first + count - 1 - number
        t = tile * BT + i
        t_in = t < T
        row = (batch.to(tl.int64) * T + t)[:, None]
        inside, tn_in = t_in[:, None] & d_in[None, :], t_in[:, None] & n_in[None, :]
        delta, x = load_steps(dt, dt_bias, row, d, inside, dt_row, D, SOFTPLUS, COMPUTE)
        u_t = tl.load(u + row * u_row + d[None, :], inside, 0.0).to(COMPUTE)  # (BT, BD)
        dy_t = tl.load(dy + row * dy_row + d[None, :], inside, 0.0).to(COMPUTE)  # (BT, BD)
        B_t = tl.load(B + row * B_row + n[None, :], tn_in, 0.0).to(COMPUTE)  # (BT, BN)
        C_t = tl.load(C + row * C_row + n[None, :], tn_in, 0.0).to(COMPUTE)  # (BT, BN)
        before = tl.load(saved + (tile.to(tl.int64) * tl.num_programs(2) + batch) * N * D + in_state, state_in, 0.0)

        # h = kept + added: the decayed previous state and the input of step t
        a = decays(delta, rates, forgets, resets, batch, t, T)
        added = (delta * u_t)[:, None, :] * B_t[:, :, None]
        decay, kept, added = tl.associative_scan((a, tl.zeros_like(a), added), 0, linear_split)
        kept += decay * before[None, :, :]
        h = kept + added
        if z is not None:
            z_t = tl.load(z + row * z_row + d[None, :], inside, 0.0).to(COMPUTE)
            gate = sigmoid(z_t)
            out = tl.sum(h * C_t[:, :, None], 1)  # (BT, BD)
            if skip is not None:
                out += tl.load(skip + d, d_in, 0.0).to(COMPUTE)[None, :] * u_t
            dz_t = dy_t * out * gate * (1.0 + z_t * (1.0 - gate))
            tl.store(dz + row * D + d[None, :], dz_t.to(dz.dtype.element_ty), inside)
            dy_t *= z_t * gate
        at_n = ((tl.program_id(0).to(tl.int64) * tl.num_programs(2) + batch) * T + t)[:, None] * N + n[None, :]
        tl.store(dC + at_n, tl.sum(h * dy_t[:, None, :], 2), tn_in)

        # g_t = C_t dy_t + a_(t+1) g_(t+1), the gradient of h_t
        t_next = t + 1
        next_in = (t_next < T)[:, None] & d_in[None, :]
        delta_next, _ = load_steps(dt, dt_bias, row + 1, d, next_in, dt_row, D, SOFTPLUS, COMPUTE)
        a_next = tl.where(
            (i == BT - 1)[:, None, None], 1.0, decays(delta_next, rates, forgets, resets, batch, t_next, T)
        )
        decay, g = tl.associative_scan((a_next, dy_t[:, None, :] * C_t[:, :, None]), 0, linear, reverse=True)
        g += decay * w[None, :, :]
        w = row_of(a * g, i, 0)

        tl.store(dB + at_n, tl.sum(g * (delta * u_t)[:, None, :], 2), tn_in)
        dx = tl.sum(g * B_t[:, :, None], 1)  # (BT, BD) of delta * u
        g *= kept  # of delta * A
        ddelta = dx * u_t + tl.sum(g * rates[None, :, :], 1)
        dA_sum += tl.sum(g * delta[:, None, :], 0)
        du_t = dx * delta
        if skip is not None:
            du_t += tl.load(skip + d, d_in, 0.0).to(COMPUTE)[None, :] * dy_t
            dskip_sum += tl.sum(dy_t * u_t, 0)
        tl.store(du + row * D + d[None, :], du_t.to(du.dtype.element_ty), inside)
        if SOFTPLUS:
            ddelta *= sigmoid(x)
        dbias_sum += tl.sum(tl.where(inside, ddelta, 0.0), 0)
        tl.store(ddt + row * D + d[None, :], ddelta.to(ddt.dtype.element_ty), inside)
    tl.store(dA + part * N * D + in_state, dA_sum, state_in)
    if skip is not None:
        tl.store(dskip + part * D + d, dskip_sum, d_in)
    if dt_bias is not None:
        tl.store(dbias + part * D + d, dbias_sum, d_in)
    if segment == 0:
        tl.store(dh0 + batch.to(tl.int64) * N * D + in_state, w, state_in)
