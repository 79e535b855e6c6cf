# mypy: disable-error-code="no-untyped-def"
"""An elementwise linear recurrence in tiles of steps and channels (BT, BD), for real or complex numbers.

Every kernel goes from tile to tile of its segment and carries the state. Complex tensors are real, with a last axis of
2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ssm_kernels.native.triton_tiles import complex_linear, linear


@triton.jit
def load_part(x, at, inside, PART: tl.constexpr, COMPLEX: tl.constexpr, COMPUTE: tl.constexpr):
    """Real (PART 0) or imaginary (PART 1) part of the elements `at`; 0 outside the mask."""
    if COMPLEX:
        return tl.load(x + 2 * at + PART, inside, 0.0).to(COMPUTE)
    elif PART == 1:
        return tl.zeros(at.shape, COMPUTE)
    else:
        return tl.load(x + at, inside, 0.0).to(COMPUTE)


@triton.jit
def store_part(x, at, value, inside, PART: tl.constexpr, COMPLEX: tl.constexpr):
    """The counterpart of `load_part`."""
    if COMPLEX:
        tl.store(x + 2 * at + PART, value, inside)
    elif PART == 0:
        tl.store(x + at, value, inside)


@triton.jit
def row_of(x, i, row):
    """One row of a tile (BT, BD)."""
    return tl.sum(tl.where((i == row)[:, None], x, 0.0), 0)


@triton.jit
def load_decay(
    a, resets, b, t, d, t_in, d_in, T, D, PART: tl.constexpr, CONSTANT: tl.constexpr, COMPLEX: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """(BT, BD): one part of a_t; 0 at resets, and 1 (no decay) beyond the sequence."""
    inside = t_in[:, None] & d_in[None, :]
    row = (b.to(tl.int64) * T + t)[:, None]
    value = load_part(a, (0 * t[:, None] if CONSTANT else row * D) + d[None, :], inside, PART, COMPLEX, COMPUTE)
    if resets is not None:
        value = tl.where(tl.load(resets + row, t_in[:, None], 0) != 0, 0.0, value)
    return tl.where(t_in[:, None], value, 1.0 - PART)


@triton.jit
def solve(a_re, a_im, b_re, b_im, REVERSE: tl.constexpr, COMPLEX: tl.constexpr):
    """Scan along steps: decay and sum from the tile's first step (its last if REVERSE) to every step."""
    if COMPLEX:
        return tl.associative_scan((a_re, a_im, b_re, b_im), 0, complex_linear, reverse=REVERSE)
    else:
        decay, total = tl.associative_scan((a_re, b_re), 0, linear, reverse=REVERSE)
        return decay, a_im, total, b_im


@triton.jit
def diagonal_forward_kernel(
    a, b, resets, start, h, last, total, T, D, tiles, each, CONSTANT: tl.constexpr, COMPLEX: tl.constexpr,
    BT: tl.constexpr, BD: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """h (B, T, D) and `last` (B, D) from `start` (S, B, D).

    With `total`, the kernel only computes how each segment maps a state, in `total` and `last` (S, B, D).
    """
    batch, segment = tl.program_id(2), tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    d_in = d < D
    i = tl.arange(0, BT)
    state_at = (segment.to(tl.int64) * tl.num_programs(2) + batch) * D + d
    re, im = tl.zeros([BD], COMPUTE), tl.zeros([BD], COMPUTE)
    if start is not None:
        re += load_part(start, state_at, d_in, 0, COMPLEX, COMPUTE)
        im += load_part(start, state_at, d_in, 1, COMPLEX, COMPUTE)
    through_re, through_im = tl.full([BD], 1.0, COMPUTE), tl.zeros([BD], COMPUTE)
    first = segment * each
    for n in range(tl.minimum(tiles - first, each)):
        t = (first + n) * BT + i
        t_in = t < T
        inside = t_in[:, None] & d_in[None, :]
        at = (batch.to(tl.int64) * T + t)[:, None] * D + d[None, :]
        a_re = load_decay(a, resets, batch, t, d, t_in, d_in, T, D, 0, CONSTANT, COMPLEX, COMPUTE)
        a_im = load_decay(a, resets, batch, t, d, t_in, d_in, T, D, 1, CONSTANT, COMPLEX, COMPUTE)
        b_re = load_part(b, at, inside, 0, COMPLEX, COMPUTE)
        b_im = load_part(b, at, inside, 1, COMPLEX, COMPUTE)
        p_re, p_im, s_re, s_im = solve(a_re, a_im, b_re, b_im, False, COMPLEX)
        if COMPLEX:
            h_re = p_re * re[None, :] - p_im * im[None, :] + s_re
            h_im = p_re * im[None, :] + p_im * re[None, :] + s_im
            im = row_of(h_im, i, BT - 1)
        else:
            h_re = p_re * re[None, :] + s_re
            h_im = s_im
        re = row_of(h_re, i, BT - 1)
        if total is not None:
            w_re, w_im = row_of(p_re, i, BT - 1), row_of(p_im, i, BT - 1)
            if COMPLEX:
                through_re, through_im = (
                    through_re * w_re - through_im * w_im,
                    through_re * w_im + through_im * w_re,
                )
            else:
                through_re *= w_re
        else:
            store_part(h, at, h_re, inside, 0, COMPLEX)
            store_part(h, at, h_im, inside, 1, COMPLEX)
    if total is not None:
        store_part(last, state_at, re, d_in, 0, COMPLEX)
        store_part(last, state_at, im, d_in, 1, COMPLEX)
        store_part(total, state_at, through_re, d_in, 0, COMPLEX)
        store_part(total, state_at, through_im, d_in, 1, COMPLEX)
    elif segment == tl.num_programs(1) - 1:
        store_part(last, batch.to(tl.int64) * D + d, re, d_in, 0, COMPLEX)
        store_part(last, batch.to(tl.int64) * D + d, im, d_in, 1, COMPLEX)


@triton.jit
def diagonal_backward_kernel(
    a, dh, h, h0, resets, start, da, db, last, total, T, D, tiles, each, CONSTANT: tl.constexpr, COMPLEX: tl.constexpr,
    BT: tl.constexpr, BD: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """g_t = dh_t + w_(t+1), w_t = conj(a_t) g_t, da_t = g_t conj(h_(t-1)), db_t = g_t, from w = `start` after the end.

    `last` is w before the first step. da is (B, T, D), or (S * B, D) per segment if CONSTANT.
    With `total`, the kernel only computes how each segment maps w.
    """
    batch, segment = tl.program_id(2), tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    d_in = d < D
    i = tl.arange(0, BT)
    state_at = (segment.to(tl.int64) * tl.num_programs(2) + batch) * D + d
    re, im = tl.zeros([BD], COMPUTE), tl.zeros([BD], COMPUTE)  # w of the step after the tile
    if start is not None:
        re += load_part(start, state_at, d_in, 0, COMPLEX, COMPUTE)
        im += load_part(start, state_at, d_in, 1, COMPLEX, COMPUTE)
    through_re, through_im = tl.full([BD], 1.0, COMPUTE), tl.zeros([BD], COMPUTE)
    sum_re, sum_im = tl.zeros([BD], COMPUTE), tl.zeros([BD], COMPUTE)
    first = segment * each
    count = tl.minimum(tiles - first, each)
    for n in range(count):
        t = (first + count - 1 - n) * BT + i
        t_in = t < T
        inside = t_in[:, None] & d_in[None, :]
        row = (batch.to(tl.int64) * T + t)[:, None]
        at = row * D + d[None, :]
        # decay of step t + 1 inside the tile: g_t = dh_t + conj(a_(t+1)) g_(t+1)
        a_re = load_decay(a, resets, batch, t + 1, d, t + 1 < T, d_in, T, D, 0, CONSTANT, COMPLEX, COMPUTE)
        a_im = load_decay(a, resets, batch, t + 1, d, t + 1 < T, d_in, T, D, 1, CONSTANT, COMPLEX, COMPUTE)
        g_re = load_part(dh, at, inside, 0, COMPLEX, COMPUTE)
        g_im = load_part(dh, at, inside, 1, COMPLEX, COMPUTE)
        end = (i == BT - 1)[:, None]
        a_re, a_im = tl.where(end, 1.0, a_re), tl.where(end, 0.0, -a_im)
        p_re, p_im, g_re, g_im = solve(a_re, a_im, g_re, g_im, True, COMPLEX)
        if COMPLEX:
            g_re += p_re * re[None, :] - p_im * im[None, :]
            g_im += p_re * im[None, :] + p_im * re[None, :]
        else:
            g_re += p_re * re[None, :]
        # w of the tile's first step
        head_t = (first + count - 1 - n) * BT + tl.arange(0, 1)
        head_re = load_decay(a, resets, batch, head_t, d, head_t < T, d_in, T, D, 0, CONSTANT, COMPLEX, COMPUTE)
        head_im = load_decay(a, resets, batch, head_t, d, head_t < T, d_in, T, D, 1, CONSTANT, COMPLEX, COMPUTE)
        head_re, head_im = tl.sum(head_re, 0), -tl.sum(head_im, 0)
        w_re, w_im = row_of(g_re, i, 0), row_of(g_im, i, 0)
        if total is not None:
            x_re, x_im = row_of(p_re, i, 0), row_of(p_im, i, 0)
            if COMPLEX:
                x_re, x_im = x_re * head_re - x_im * head_im, x_re * head_im + x_im * head_re
                through_re, through_im = (
                    through_re * x_re - through_im * x_im,
                    through_re * x_im + through_im * x_re,
                )
            else:
                through_re *= x_re * head_re
        else:
            store_part(db, at, g_re, inside, 0, COMPLEX)
            store_part(db, at, g_im, inside, 1, COMPLEX)
            past_in = (t > 0)[:, None] & inside
            past_re = load_part(h, at - D, past_in, 0, COMPLEX, COMPUTE)
            past_im = load_part(h, at - D, past_in, 1, COMPLEX, COMPUTE)
            if h0 is not None:
                start_in = (t == 0)[:, None] & inside
                start_at = batch.to(tl.int64) * D + d[None, :] + 0 * at
                past_re += load_part(h0, start_at, start_in, 0, COMPLEX, COMPUTE)
                past_im += load_part(h0, start_at, start_in, 1, COMPLEX, COMPUTE)
            if resets is not None:
                forget = tl.load(resets + row, t_in[:, None], 0) != 0
                past_re, past_im = tl.where(forget, 0.0, past_re), tl.where(forget, 0.0, past_im)
            if COMPLEX:
                da_re, da_im = g_re * past_re + g_im * past_im, g_im * past_re - g_re * past_im
            else:
                da_re, da_im = g_re * past_re, g_im
            if CONSTANT:
                sum_re += tl.sum(da_re, 0)
                sum_im += tl.sum(da_im, 0)
            else:
                store_part(da, at, da_re, inside, 0, COMPLEX)
                store_part(da, at, da_im, inside, 1, COMPLEX)
        if COMPLEX:
            re, im = w_re * head_re - w_im * head_im, w_re * head_im + w_im * head_re
        else:
            re = w_re * head_re
    if total is not None:
        store_part(last, state_at, re, d_in, 0, COMPLEX)
        store_part(last, state_at, im, d_in, 1, COMPLEX)
        store_part(total, state_at, through_re, d_in, 0, COMPLEX)
        store_part(total, state_at, through_im, d_in, 1, COMPLEX)
    else:
        if CONSTANT:
            store_part(da, state_at, sum_re, d_in, 0, COMPLEX)
            store_part(da, state_at, sum_im, d_in, 1, COMPLEX)
        if segment == 0:
            store_part(last, batch.to(tl.int64) * D + d, re, d_in, 0, COMPLEX)
            store_part(last, batch.to(tl.int64) * D + d, im, d_in, 1, COMPLEX)
