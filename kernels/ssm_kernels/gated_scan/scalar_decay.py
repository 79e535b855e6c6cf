"""Chunks of the gated scan with one decay per head: matrix products over pairs of tokens (Dao & Gu 2024, Section 6).

The log decay of each pair of tokens is the sum of its own terms (`_pair_sums`). There is no division by a decay and no
difference of sums, so strong and vanishing decays lose no precision.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class _Chunks(NamedTuple):
    """Tensors of a span that forward and backward both need. R heads share q and k of a group: H = G R."""

    q: Tensor  # (B, C, G, Q, K)
    k: Tensor  # (B, C, G, Q, K)
    v: Tensor  # (B, C, G, R, Q, V)
    decay: Tensor  # (B, C, G, R, Q, Q + 1), B and C may be 1: column 0 from the chunk's start, j + 1 from token j
    scores: Tensor  # (B, C, G, 1, Q, Q): q_i . k_j
    weights: Tensor  # (B, C, G, R, Q, Q): scores times decays
    entering: Tensor  # (B, C, G, R, K, V): the state that each chunk starts from
    state: Tensor  # (B, H, K, V): the state after the last

    @property
    def from_start(self) -> Tensor:
        """(B, C, G, R, Q, 1): from the state before the chunk to token i."""
        return self.decay[..., :1]

    @property
    def between(self) -> Tensor:
        """(B, C, G, R, Q, Q): from token j to token i, 0 for j > i."""
        return self.decay[..., 1:]

    @property
    def to_end(self) -> Tensor:
        """(B, C, G, R, Q, 1): from token j to the chunk's last token."""
        return self.decay[..., -1, 1:, None]

    @property
    def whole(self) -> Tensor:
        """(B, C, G, R, 1, 1): across the whole chunk."""
        return self.decay[..., -1:, :1]


def forward(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """q, k (B, C, Q, G, K), v (B, C, Q, H, V), log_decay (B, C, Q, H), state (B, H, K, V) -> y as v, state."""
    parts = _compute(q, k, v, log_decay, state)
    y = parts.weights @ parts.v  # (B, C, G, R, Q, V)
    y.addcmul_(_read(parts.q, parts.entering), parts.from_start)
    return y.flatten(2, 3).transpose(2, 3), parts.state


def backward(
    dy: Tensor, dstate: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of the state before the span, log_decay, the bonus (None), q, k and v."""
    parts = _compute(q, k, v, log_decay, state)
    groups = parts.v.shape[2:4]  # (G, R)
    dy = dy.transpose(2, 3).unflatten(2, groups)  # (B, C, G, R, Q, V)
    faded = dy * parts.from_start  # (B, C, G, R, Q, V)

    # Recurrence over chunks, from the last: gradients of what each chunk adds to the state.
    read = torch.einsum("bcgqk,bcgrqv->bcgrkv", parts.q, faded)
    chunks, wholes = read.shape[1], parts.whole.expand(-1, read.shape[1], -1, -1, -1, -1)
    dstate = dstate.unflatten(1, groups)  # (B, G, R, K, V)
    dadded = torch.empty_like(read)
    for c in range(chunks - 1, -1, -1):
        dadded[:, c] = dstate
        dstate = torch.addcmul(read[:, c], wholes[:, c], dstate)

    dweights = dy @ parts.v.transpose(-1, -2)  # (B, C, G, R, Q, Q)
    kept = parts.v * parts.to_end  # (B, C, G, R, Q, V)
    arrived = _read(parts.k, dadded)  # (B, C, G, R, Q, V)
    dv = (parts.weights.transpose(-1, -2) @ dy).addcmul_(arrived, parts.to_end)

    dlog = dy.new_empty(*dweights.shape[:-1], dweights.shape[-1] + 1)  # (B, C, G, R, Q, Q + 1), as `decay`
    torch.mul(dweights, parts.weights, out=dlog[..., 1:])
    dlog[..., 0] = (faded * _read(parts.q, parts.entering)).sum(-1)
    dlog[..., -1, 1:] += (arrived * kept).sum(-1)
    dlog[..., -1, 0] += (dadded * parts.entering).sum((-1, -2)) * parts.whole[..., 0, 0]
    dlog = dlog.sum_to_size(parts.decay.shape)
    sums, _ = _pair_sums(dlog.shape[-2], dlog.dtype, dlog.device)
    dlog = (dlog.flatten(-2) @ sums.t()).flatten(2, 3).transpose(2, 3)  # (B, C, Q, H)

    dscores = (dweights * parts.between).sum(3)  # (B, C, G, Q, Q)
    dq = dscores @ parts.k + torch.einsum("bcgrqv,bcgrkv->bcgqk", faded, parts.entering)
    dk = dscores.transpose(-1, -2) @ parts.q + torch.einsum("bcgrqv,bcgrkv->bcgqk", kept, dadded)
    dq, dk, dv = (x.transpose(2, 3) for x in (dq, dk, dv.flatten(2, 3)))
    return dstate.flatten(1, 2), dlog, None, dq, dk, dv


def _compute(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor) -> _Chunks:
    """Compute the tensors from which the outputs of a span follow."""
    Q, groups = q.shape[2], (q.shape[3], v.shape[3] // q.shape[3])
    q, k = (x.transpose(2, 3).contiguous() for x in (q, k))  # (B, C, G, Q, K)
    v = v.transpose(2, 3).contiguous().unflatten(2, groups)  # (B, C, G, R, Q, V)
    log_decay = log_decay.transpose(2, 3).unflatten(2, groups)  # (B, C, G, R, Q)

    sums, mask = _pair_sums(Q, v.dtype, v.device)
    decay = torch.addmm(mask, log_decay.reshape(-1, Q), sums).exp_().view(*log_decay.shape, Q + 1)
    scores = (q @ k.transpose(-1, -2)).unsqueeze(3)  # (B, C, G, 1, Q, Q), once per group
    weights = scores * decay[..., 1:]  # (B, C, G, R, Q, Q)
    added = torch.einsum("bcgqk,bcgrqv->bcgrkv", k, v * decay[..., -1, 1:, None])

    wholes = decay[..., -1:, :1].expand(-1, added.shape[1], -1, -1, -1, -1)  # (B, C, G, R, 1, 1)
    entering = torch.empty_like(added)
    state = state.unflatten(1, groups)  # (B, G, R, K, V)
    for c in range(added.shape[1]):
        entering[:, c] = state
        state = torch.addcmul(added[:, c], wholes[:, c], state)
    return _Chunks(q, k, v, decay, scores, weights, entering, state.flatten(1, 2))


def _read(q: Tensor, states: Tensor) -> Tensor:
    """q^T S for every head: (B, C, G, Q, K) and (B, C, G, R, K, V) -> (B, C, G, R, Q, V)."""
    return torch.einsum("bcgqk,bcgrkv->bcgrqv", q, states)


@lru_cache(maxsize=4)
@torch.inference_mode(False)  # also usable for training if made during inference
def _pair_sums(Q: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """A constant matrix that sums the log decays of every pair of tokens, and its causal mask.

    Column (i, j) of `sums` (Q, Q * (Q + 1)) is 1 at the steps s with j <= s <= i, else 0. A row of log decays times
    this matrix gives the log decays from just before step j to step i. So column j = 0 starts at the state before the
    chunk, and column j + 1 starts at token j. `mask` (1, Q * (Q + 1)) is -inf if token j comes after token i. The
    product with a constant matrix is one GEMM, forward and backward, and adds only the terms of each pair.
    """
    step = torch.arange(Q)
    i, j, s = step[:, None, None], torch.arange(Q + 1)[None, :, None], step[None, None, :]
    sums = ((j <= s) & (s <= i)).to(dtype).view(-1, Q).t().contiguous()  # (Q, Q * (Q + 1))
    after = torch.arange(Q + 1)[None, :] - 1 > step[:, None]  # (Q, Q + 1)
    mask = torch.zeros(Q, Q + 1, dtype=dtype).masked_fill(after, float("-inf")).view(1, -1)
    return sums.to(device), mask.to(device)
