"""Chunks of the gated scan with a decay per key (GLA, RWKV-6), by repeated halving (`ssm_kernels.halving`).

With a bonus (Peng et al. 2024, RWKV-6), step t reads the state before its own decay.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.halving import Halving


class _Chunks(NamedTuple):
    """Tensors of a span that forward and backward both need, for M = B C H chunks."""

    q: Tensor  # (M, L, K)
    k: Tensor  # (M, L, K)
    v: Tensor  # (M, L, V)
    decay: Halving
    scores: Tensor  # (M, L, L): lower triangular
    whole: Tensor  # (B, C, H, K, 1): the decay across the whole chunk
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
    y.baddbmm_(parts.q * parts.decay.from_start, parts.entering.flatten(0, 2))
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
    decay, heads, L = parts.decay, v.shape[3], parts.q.shape[1]
    dy = _chunks_first(dy, heads, L)  # (M, L, V)

    # Recurrence over chunks, from the last: gradients of what each chunk adds to the state.
    reader, writer = parts.q * decay.from_start, parts.k * decay.to_end  # (M, L, K)
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
    dq, dk = dreader * decay.from_start, dwriter * decay.to_end  # (M, L, K)
    prefix, suffix = dreader.mul_(reader), dwriter.mul_(writer)  # gradients of the sums of a whole chunk
    dscores = torch.bmm(dy, parts.v.mT)  # (M, L, L)

    dlog = decay.add_gradients([[dscores]], [dq], [dk], prefix, suffix, dtotal)  # (M, L, K)
    if bonus is None:
        dlog.add_(prefix)

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

    if bonus is None:
        prefix = g.clone()
    else:  # a step reads before its own decay, but after a reset
        prefix = torch.zeros_like(g)
        if resets is not None:
            prefix += _chunks_first(log_decay.masked_fill(~resets[..., None, None], 0.0), heads, L)
    decay = Halving(g, prefix)
    scores = decay.scores([q], [k])[0][0]
    own = k if bonus is None else k * _per_chunk(bonus, M)
    scores.diagonal(dim1=-2, dim2=-1).copy_((q * own).sum(-1))

    shape = (state.shape[0], -1, heads, K)
    whole = decay.whole.view(*shape, 1)  # (B, C, H, K, 1)
    added = torch.bmm((k * decay.to_end).mT, v).view(*shape, v.shape[-1])  # (B, C, H, K, V)
    entering = torch.empty_like(added)
    for c in range(added.shape[1]):
        entering[:, c] = state
        state = torch.addcmul(added[:, c], whole[:, c], state)
    return _Chunks(q, k, v, decay, scores, whole, entering, state)


def _chunks_first(x: Tensor, heads: int, L: int) -> Tensor:
    """(B, C, Q, H or G, K) -> (B C H, L, K), padded with zeros to L tokens."""
    x = x.repeat_interleave(heads // x.shape[3], dim=3) if x.shape[3] < heads else x
    return F.pad(x.transpose(2, 3), (0, 0, 0, L - x.shape[2])).reshape(-1, L, x.shape[4])


def _tokens_first(x: Tensor, like: Tensor) -> Tensor:
    """(B C H, L, K) -> (B, C, Q, H, K), where `like` is (B, C, Q, H, V)."""
    B, C, Q, H = like.shape[:4]
    return x.view(B, C, H, *x.shape[1:])[..., :Q, :].transpose(2, 3)


def _per_chunk(bonus: Tensor, M: int) -> Tensor:
    """(H, K) -> (M, 1, K)."""
    return bonus.repeat(M // bonus.shape[0], 1).unsqueeze(1)
