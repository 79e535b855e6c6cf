# mypy: disable-error-code="no-untyped-def"
"""Scores of pairs of tokens within a chunk for a decay per key dimension, and their gradients.

A chunk is split into blocks of 16. For tokens in different blocks, the decay is split at the start of the query's
block. Then both factors of the product are at most as large as q and k: exponents are sums of log decays, never of
their negatives. Within a block, the decay of every pair is computed step by step.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ssm_kernels.gated_scan.triton_states import decay_from_start, decay_of, decay_to_end, forgotten, key_decay
from ssm_kernels.native.triton_tiles import load_rows, product

BLOCK = tl.constexpr(16)


@triton.jit
def decay_over_block(log_decay, resets, b, h, t, k, k_in, T, H, K, COMPUTE: tl.constexpr):
    """(BK,) log decay over a whole block."""
    inside = (t < T)[:, None] & k_in[None, :]
    return tl.sum(key_decay(log_decay, resets, b, h, t[:, None], k[None, :], inside, T, H, K, COMPUTE), 0)


@triton.jit
def key_scores_kernel(
    q, k, log_decay, bonus, resets, scores, q_row, k_row, T, H, G, K, batch_heads, C: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """scores[t, s] = sum over keys of q_t decay(s to t) k_s for s <= t, (NC, BH, C, C), for one block of queries."""
    bh = tl.program_id(0)
    block = tl.program_id(1)
    c = tl.program_id(2)
    b, h = bh // H, bh % H
    group = h // (H // G)
    EXCLUSIVE: tl.constexpr = bonus is not None
    i = tl.arange(0, BLOCK)
    start = c * C + block * BLOCK
    t = start + i
    batch_row = b.to(tl.int64) * T
    k_at = tl.arange(0, BK)
    k_in = k_at < K
    out = scores + ((c.to(tl.int64) * batch_heads + bh) * C + block * BLOCK + i[:, None]) * C
    q_t = load_rows(q, batch_row + t, q_row, group * K, k_at, t < T, k_in).to(COMPUTE)  # (16, BK)
    from_start = decay_from_start(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, EXCLUSIVE, COMPUTE)
    q_decayed = q_t * decay_of(from_start)
    between = tl.zeros([BK], COMPUTE)  # over the blocks between keys and queries
    for n in range(1, block + 1):
        s = start - n * BLOCK + i
        k_s = load_rows(k, batch_row + s, k_row, group * K, k_at, s < T, k_in).to(COMPUTE)
        to_end = decay_to_end(log_decay, resets, b, h, s, i, k_at, k_in, T, H, K, BLOCK, COMPUTE)
        k_decayed = k_s * decay_of(to_end + between[None, :])
        tile = product(q_decayed, tl.trans(k_decayed), tl.zeros([BLOCK, BLOCK], COMPUTE), PRECISION)
        tl.store(out + (block - n) * BLOCK + i[None, :], tile)
        between += decay_over_block(log_decay, resets, b, h, s, k_at, k_in, T, H, K, COMPUTE)

    # Within the block, from the last key to the first: `between` is the decay from the key to every query.
    own = forgotten(resets, b, t, t < T, T, COMPUTE)[:, None]  # (16, 1)
    decay = tl.zeros([BLOCK, BK], COMPUTE)
    tile = tl.zeros([BLOCK, BLOCK], COMPUTE)
    for n in range(BLOCK):
        s = start + BLOCK - 1 - n
        s_in = k_in & (s + 0 * k_at < T)
        k_s = tl.load(k + (batch_row + s) * k_row + group * K + k_at, s_in, 0.0).to(COMPUTE)  # (BK,)
        if EXCLUSIVE:
            read = tl.where((t > s)[:, None], decay_of(decay + own), 0.0)
            u = tl.load(bonus + h * K + k_at, k_in, 0.0).to(COMPUTE)
            read = tl.where((t == s)[:, None], u[None, :], read)
        else:
            read = tl.where((t >= s)[:, None], decay_of(decay), 0.0)
        column = tl.sum(q_t * k_s[None, :] * read, 1)  # (16,)
        tile = tl.where((start + i)[None, :] == s, column[:, None], tile)
        # The previous key also decays at step s, unless s is the query's own step and that does not count.
        g = key_decay(log_decay, resets, b, h, s, k_at, s_in, T, H, K, COMPUTE)  # (BK,)
        if EXCLUSIVE:
            decay += tl.where((t > s)[:, None], g[None, :], 0.0)
        else:
            decay += tl.where((t >= s)[:, None], g[None, :], 0.0)
    tl.store(out + block * BLOCK + i[None, :], tile)


@triton.jit
def key_scores_backward_kernel(
    q, k, log_decay, resets, dscores, dq, dk, q_row, k_row, T, H, G, K, batch_heads, blocks, EXCLUSIVE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """dq and dk (B, T, H, K) of one block through all pairs of its chunk with a decay between them.

    These pairs have s < t, or s < t - 1 if EXCLUSIVE. `key_gradients_kernel` adds the other pairs.
    """
    bh = tl.program_id(0)
    block = tl.program_id(1)
    c = tl.program_id(2)
    b, h = bh // H, bh % H
    group = h // (H // G)
    GAP: tl.constexpr = 1 if EXCLUSIVE else 0
    i = tl.arange(0, BLOCK)
    start = c * C + block * BLOCK
    t = start + i
    batch_row = b.to(tl.int64) * T
    k_at = tl.arange(0, BK)
    k_in = k_at < K
    inside = (t < T)[:, None] & k_in[None, :]
    pairs = dscores + (c.to(tl.int64) * batch_heads + bh) * C * C
    out = ((batch_row + t[:, None]) * H + h) * K + k_at[None, :]
    own = forgotten(resets, b, t, t < T, T, COMPUTE)[:, None]  # (16, 1)

    dq_t = tl.zeros([BLOCK, BK], COMPUTE)
    between = tl.zeros([BK], COMPUTE)
    for n in range(1, block + 1):  # keys of the previous blocks
        s = start - n * BLOCK + i
        k_s = load_rows(k, batch_row + s, k_row, group * K, k_at, s < T, k_in).to(COMPUTE)
        to_end = decay_to_end(log_decay, resets, b, h, s, i, k_at, k_in, T, H, K, BLOCK, COMPUTE)
        d = tl.load(pairs + (block * BLOCK + i[:, None]) * C + (block - n) * BLOCK + i[None, :])  # (16, 16)
        d = tl.where(t[:, None] > s[None, :] + GAP, d, 0.0)
        dq_t = product(d, k_s * decay_of(to_end + between[None, :]), dq_t, PRECISION)
        between += decay_over_block(log_decay, resets, b, h, s, k_at, k_in, T, H, K, COMPUTE)
    from_start = decay_from_start(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, EXCLUSIVE, COMPUTE)
    dq_t *= decay_of(from_start)
    decay = tl.zeros([BLOCK, BK], COMPUTE)
    for n in range(BLOCK):  # keys of this block, from last to first
        s = start + BLOCK - 1 - n
        s_in = k_in & (s + 0 * k_at < T)
        k_s = tl.load(k + (batch_row + s) * k_row + group * K + k_at, s_in, 0.0).to(COMPUTE)  # (BK,)
        d = tl.load(pairs + (block * BLOCK + i) * C + block * BLOCK + BLOCK - 1 - n)  # (16,)
        read = decay_of(decay + own) if EXCLUSIVE else decay_of(decay)
        dq_t += tl.where((t > s + GAP)[:, None], d[:, None] * k_s[None, :] * read, 0.0)
        g = key_decay(log_decay, resets, b, h, s, k_at, s_in, T, H, K, COMPUTE)
        decay += tl.where((t >= s + GAP)[:, None], g[None, :], 0.0)
    tl.store(dq + out, dq_t, inside)

    dk_t = tl.zeros([BLOCK, BK], COMPUTE)
    between = tl.zeros([BK], COMPUTE)
    for n in range(1, blocks - block):  # queries of the next blocks
        s = start + n * BLOCK + i
        q_s = load_rows(q, batch_row + s, q_row, group * K, k_at, s < T, k_in).to(COMPUTE)
        from_start = decay_from_start(log_decay, resets, b, h, s, i, k_at, k_in, T, H, K, EXCLUSIVE, COMPUTE)
        d = tl.load(pairs + ((block + n) * BLOCK + i[None, :]) * C + block * BLOCK + i[:, None])  # (16, 16) transposed
        d = tl.where(s[None, :] > t[:, None] + GAP, d, 0.0)
        dk_t = product(d, q_s * decay_of(from_start + between[None, :]), dk_t, PRECISION)
        between += decay_over_block(log_decay, resets, b, h, s, k_at, k_in, T, H, K, COMPUTE)
    dk_t *= decay_of(decay_to_end(log_decay, resets, b, h, t, i, k_at, k_in, T, H, K, BLOCK, COMPUTE))
    decay = tl.zeros([BLOCK, BK], COMPUTE)
    for n in range(BLOCK):  # queries of this block, from first to last
        s = start + n
        s_in = k_in & (s + 0 * k_at < T)
        q_s = tl.load(q + (batch_row + s) * q_row + group * K + k_at, s_in, 0.0).to(COMPUTE)  # (BK,)
        d = tl.load(pairs + (block * BLOCK + n) * C + block * BLOCK + i)  # (16,)
        g = key_decay(log_decay, resets, b, h, s, k_at, s_in, T, H, K, COMPUTE)
        if EXCLUSIVE:
            read = decay_of(decay + forgotten(resets, b, s + 0 * i, s + 0 * i < T, T, COMPUTE)[:, None])
        else:
            decay += tl.where((t < s)[:, None], g[None, :], 0.0)
            read = decay_of(decay)
        dk_t += tl.where((t + GAP < s)[:, None], d[:, None] * q_s[None, :] * read, 0.0)
        if EXCLUSIVE:
            decay += tl.where((t < s)[:, None], g[None, :], 0.0)
    tl.store(dk + out, dk_t, inside)
