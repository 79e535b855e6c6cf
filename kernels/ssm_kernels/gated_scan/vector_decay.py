"""Chunks of the gated scan with a decay per key (GLA, RWKV-6), by repeated halving. Exact for any decay.

A chunk of L tokens is halved repeatedly. Let s be a token of a left half, and t a token of its right half. The
decay between them is a product of two factors, which meet at the border. Each is at most 1:

    sum_K q_t k_s exp(G(s, t)) = (q_t exp(G(border, t))) . (k_s exp(G(s, border))),   G(s, t) = sum_{s < j <= t} g_j

This is one small matrix product for each pair of halves. Every exponent is a sum of terms that are all <= 0. With a
bonus (Peng et al. 2024, RWKV-6), step t reads the state before its own decay, so G(s, t) ends before t.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Level(NamedTuple):
    """All pairs of halves with h tokens: L / 2h pairs in each of M chunks."""

    h: int
    reader: Tensor  # (M, L / 2h, h, K): exp of the sum from the border to token t, for the right halves
    writer: Tensor  # (M, L / 2h, h, K): exp of the sum from token s to the border, for the left halves


class _Chunks(NamedTuple):
    """Tensors of a span that forward and backward both need, for M = B C H chunks."""

    q: Tensor  # (M, L, K)
    k: Tensor  # (M, L, K)
    v: Tensor  # (M, L, V)
    levels: list[Level]
    scores: Tensor  # (M, L, L): lower triangular
    from_start: Tensor  # (M, L, K): from the state before the chunk to token t
    to_end: Tensor  # (M, L, K): from token t to the chunk's last
    whole: Tensor  # (B, C, H, K, 1): across the whole chunk
    entering: Tensor  # (B, C, H, K, V): the state that each chunk starts from
    state: Tensor  # (B, H, K, V): the state after the last


def forward(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, bonus: Tensor | None, resets: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q, k (B, C, Q, G, K), v (B, C, Q, H, V), log_decay (B, C, Q, H, K), state (B, H, K, V) -> y as v, state.

    `log_decay` contains the resets. `resets` (B, C, Q) is needed too, because a reset comes before the reading of a
    bonus.
    """
    parts = _compute(q, k, v, log_decay, state, bonus, resets)
    y = torch.bmm(parts.scores, parts.v)  # (M, L, V)
    y.baddbmm_(parts.q * parts.from_start, parts.entering.flatten(0, 2))
    return _tokens_first(y, v), parts.state


def backward(
    dy: Tensor,
    dstate: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor,
    bonus: Tensor | None,
    resets: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Gradients of the state before the span, log_decay, bonus, q, k and v."""
    parts = _compute(q, k, v, log_decay, state, bonus, resets)
    heads, L = v.shape[3], parts.q.shape[1]
    dy = _chunks_first(dy, heads, L)  # (M, L, V)

    # Recurrence over chunks, from the last: gradients of what each chunk adds to the state.
    reader, writer = parts.q * parts.from_start, parts.k * parts.to_end  # (M, L, K)
    read = torch.bmm(reader.mT, dy).view_as(parts.entering)  # (B, C, H, K, V)
    dadded = torch.empty_like(read)
    for c in range(read.shape[1] - 1, -1, -1):
        dadded[:, c] = dstate
        dstate = torch.addcmul(read[:, c], parts.whole[:, c], dstate)
    dtotal = (dadded * parts.entering).sum(-1) * parts.whole[..., 0]  # (B, C, H, K)
    dtotal = dtotal.view(-1, 1, parts.q.shape[2])  # (M, 1, K)

    flat = dadded.flatten(0, 2)  # (M, K, V)
    dv = torch.bmm(parts.scores.mT, dy).baddbmm_(writer, flat)
    dreader = torch.bmm(dy, parts.entering.flatten(0, 2).mT)  # (M, L, K)
    dwriter = torch.bmm(parts.v, flat.mT)
    dq, dk = dreader * parts.from_start, dwriter * parts.to_end  # (M, L, K)
    prefix, suffix = dreader.mul_(reader), dwriter.mul_(writer)  # gradients of the sums of a whole chunk
    dscores = torch.bmm(dy, parts.v.mT)  # (M, L, L)

    # From the whole chunk down to single tokens: gradients of each level's sums, then those of its halves.
    for h, reading, writing in reversed(parts.levels):
        dscore = pairs(dscores, h).flatten(0, 1)  # (M L / 2h, h, h)
        right, left = (halves(x, h, side) for x, side in ((parts.q, 1), (parts.k, 0)))  # (M, L / 2h, h, K)
        into_q = torch.bmm(dscore, (left * writing).flatten(0, 1)).view_as(right).mul_(reading)
        into_k = torch.bmm(dscore.mT, (right * reading).flatten(0, 1)).view_as(left).mul_(writing)
        halves(dq, h, 1).add_(into_q)
        halves(dk, h, 0).add_(into_k)
        # The sums of a right half over both halves contain the total of the left half, and vice versa.
        totals = torch.stack((halves(prefix, h, 1).sum(2), halves(suffix, h, 0).sum(2)), 2)  # (M, L / 2h, 2, K)
        dtotal = (totals + dtotal.unsqueeze(2)).flatten(1, 2)  # (M, L / h, K)
        halves(prefix, h, 1).addcmul_(into_q, right)
        halves(suffix, h, 0).addcmul_(into_k, left)
    dlog = dtotal if bonus is not None else dtotal.add_(prefix)  # (M, L, K); a token's own suffix is empty

    own = dscores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # (M, L, 1)
    dbonus = None
    if bonus is not None:
        scale = _per_chunk(bonus, dy.shape[0])
        dbonus = (own * parts.q * parts.k).sum(1).view(-1, *bonus.shape).sum(0)  # (H, K)
        own = own * scale
    dq.addcmul_(own, parts.k)
    dk.addcmul_(own, parts.q)
    dq, dk = (_tokens_first(x, v).unflatten(3, (q.shape[3], -1)).sum(4) for x in (dq, dk))  # (B, C, Q, G, K)
    return dstate, _tokens_first(dlog, v), dbonus, dq, dk, _tokens_first(dv, v)


def _compute(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, bonus: Tensor | None, resets: Tensor | None
) -> _Chunks:
    """Compute the tensors from which the outputs of a span follow."""
    heads = v.shape[3]
    L = 1 << (q.shape[2] - 1).bit_length()  # halving needs a power of two; padding with zeros changes nothing
    q, k, v, g = (_chunks_first(x, heads, L) for x in (q, k, v, log_decay))
    M, _, K = q.shape

    # `prefix`: sum of a block's decays up to the reading of token t. `suffix`: sum of those after its writing.
    prefix, suffix, total = g.clone(), torch.zeros_like(g), g
    if bonus is not None:  # a step reads before its own decay, but after a reset
        prefix.zero_()
        if resets is not None:
            prefix += _chunks_first(log_decay.masked_fill(~resets[..., None, None], 0.0), heads, L)
    levels = []
    scores = q.new_zeros(M, L, L)
    own = k if bonus is None else k * _per_chunk(bonus, M)
    scores.diagonal(dim1=-2, dim2=-1).copy_((q * own).sum(-1))
    h = 1
    while h < L:
        right, left = halves(prefix, h, 1), halves(suffix, h, 0)  # (M, L / 2h, h, K)
        level = Level(h, right.exp(), left.exp())
        reader, writer = halves(q, h, 1) * level.reader, halves(k, h, 0) * level.writer
        pairs(scores, h).copy_(torch.bmm(reader.flatten(0, 1), writer.flatten(0, 1).mT).view(M, -1, h, h))
        levels.append(level)
        total = total.view(M, -1, 2, K)
        right += total[:, :, :1]
        left += total[:, :, 1:]
        total = total.sum(2)  # (M, L / 2h, K)
        h *= 2
    from_start, to_end = prefix.exp_(), suffix.exp_()

    shape = (state.shape[0], -1, heads, K)
    whole = total.exp().view(*shape, 1)  # (B, C, H, K, 1)
    added = torch.bmm((k * to_end).mT, v).view(*shape, v.shape[-1])  # (B, C, H, K, V)
    entering = torch.empty_like(added)
    for c in range(added.shape[1]):
        entering[:, c] = state
        state = torch.addcmul(added[:, c], whole[:, c], state)
    return _Chunks(q, k, v, levels, scores, from_start, to_end, whole, entering, state)


def _chunks_first(x: Tensor, heads: int, L: int) -> Tensor:
    """(B, C, Q, H or G, K) -> (B C H, L, K), padded with zeros to L tokens."""
    x = x.repeat_interleave(heads // x.shape[3], dim=3) if x.shape[3] < heads else x
    return F.pad(x.transpose(2, 3), (0, 0, 0, L - x.shape[2])).reshape(-1, L, x.shape[4])


def _tokens_first(x: Tensor, like: Tensor) -> Tensor:
    """(B C H, L, K) -> (B, C, Q, H, K), where `like` is (B, C, Q, H, V)."""
    B, C, Q, H = like.shape[:4]
    return x.view(B, C, H, *x.shape[1:])[..., :Q, :].transpose(2, 3)


def halves(x: Tensor, h: int, side: int) -> Tensor:
    """The left (0) or right (1) halves of all blocks of 2h tokens: (M, L, K) -> (M, L / 2h, h, K), a view."""
    M, L, K = x.shape
    return x.view(M, L // (2 * h), 2, h, K)[:, :, side]


def pairs(scores: Tensor, h: int) -> Tensor:
    """The scores of right halves (rows) with their left halves (columns): (M, L, L) -> (M, L / 2h, h, h), a view."""
    M, L, _ = scores.shape
    blocks = scores.view(M, L // (2 * h), 2, h, L // (2 * h), 2, h)
    return blocks[:, :, 1, :, :, 0].diagonal(dim1=1, dim2=3).movedim(-1, 1)


def _per_chunk(bonus: Tensor, M: int) -> Tensor:
    """(H, K) -> (M, 1, K)."""
    return bonus.repeat(M // bonus.shape[0], 1).unsqueeze(1)
