"""The oracles: every recurrence as its definition says, one step at a time. Slow, plain, and right.

Give them float64 tensors to judge a fast backend.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def gated_scan(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """S_t = exp(log_decay_t) S_{t-1} + k_t v_t^T and y_t = q_t^T S_t; shapes as in `ssm_kernels.gated_scan`."""
    batch, _, heads, value_dim = v.shape
    groups, key_dim = k.shape[2:]
    q, k = (x.repeat_interleave(heads // groups, dim=2) for x in (q, k))  # (B, T, H, K)
    state = v.new_zeros(batch, heads, key_dim, value_dim) if h0 is None else h0  # (B, H, K, V)
    outputs = []
    for q_t, k_t, v_t, log_a_t in zip(q.unbind(1), k.unbind(1), v.unbind(1), log_decay.unbind(1), strict=True):
        state = log_a_t.exp()[..., None, None] * state + k_t[..., :, None] * v_t[..., None, :]  # (B, H, K, V)
        outputs.append((q_t[..., :, None] * state).sum(-2))  # (B, H, V)
    return torch.stack(outputs, 1), state


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
    resets: Tensor | None = None,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """A sliding window over the last K inputs, emptied by a reset; shapes as in `ssm_kernels.causal_conv1d`."""
    batch, length, channels = x.shape
    width = weight.shape[1]
    window = list((x.new_zeros(batch, width - 1, channels) if state is None else state).unbind(1))  # K-1 of (B, D)
    outputs = []
    for t in range(length):
        if resets is not None:
            keep = (~resets[:, t]).to(x.dtype)[:, None]  # (B, 1)
            window = [value * keep for value in window]
        window.append(x[:, t])
        y = torch.zeros_like(x[:, t]) if bias is None else bias.expand_as(x[:, t])  # (B, D)
        for i, value in enumerate(window):
            y = y + value * weight[:, i]
        outputs.append(F.silu(y) if activation == "silu" else y)
        window = window[1:]
    last = torch.stack(window, 1) if window else x.new_zeros(batch, 0, channels)
    return torch.stack(outputs, 1), last
