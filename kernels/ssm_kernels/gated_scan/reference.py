"""The oracle: the definition of the recurrence, one step at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssm_kernels.gated_scan.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """S_t = diag(a_t) S_{t-1} + k_t v_t^T; y_t is read from S_t, or from S_{t-1} and the bonus."""
    q, k, v, log_decay, h0, bonus, resets = inputs
    batch, length, heads, value_dim = v.shape
    groups, key_dim = k.shape[2:]
    q, k = (x.repeat_interleave(heads // groups, dim=2) for x in (q, k))  # (B, T, H, K)
    state = v.new_zeros(batch, heads, key_dim, value_dim) if h0 is None else h0  # (B, H, K, V)
    steps = zip(q.unbind(1), k.unbind(1), v.unbind(1), _decays(log_decay, length), strict=True)
    outputs = []
    for t, (q_t, k_t, v_t, a_t) in enumerate(steps):
        if resets is not None:
            state = state.masked_fill(resets[:, t, None, None, None], 0.0)
        decayed = state if a_t is None else a_t * state  # (B, H, K, V)
        added = k_t[..., :, None] * v_t[..., None, :]  # (B, H, K, V)
        read = decayed + added if bonus is None else state + bonus[..., None] * added  # (B, H, K, V)
        outputs.append((q_t[..., :, None] * read).sum(-2))  # (B, H, V)
        state = decayed + added
    return torch.stack(outputs, 1), state


def _decays(log_decay: Tensor | None, length: int) -> Sequence[Tensor | None]:
    """a_t of every step, in a shape that multiplies the state (B, H, K, V); None for no decay."""
    if log_decay is None:
        return (None,) * length
    a = log_decay.exp()
    if a.dim() == 1:
        return (a[:, None, None],) * length  # (H, 1, 1)
    a = a.unsqueeze(-1) if a.dim() == 3 else a  # (B, T, H, 1 or K)
    return a.unsqueeze(-1).unbind(1)  # T of (B, H, 1 or K, 1)
