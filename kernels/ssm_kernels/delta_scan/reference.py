"""The oracle: the recurrence as its definition says, one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm_kernels.delta_scan.inputs import Inputs, Options


def unavailable(device: torch.device) -> str | None:
    """It runs anywhere."""
    return None


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """S_t by the delta rule or in the generalized form, as the package's first lines say; y_t = q_t^T S_t."""
    q, k, v, beta, log_decay, h0, a, b, resets = inputs
    batch, length, heads, value_dim = v.shape
    groups, key_dim = k.shape[2:]
    q, k = (x.repeat_interleave(heads // groups, dim=2) for x in (q, k))  # (B, T, H, K)
    state = v.new_zeros(batch, heads, key_dim, value_dim) if h0 is None else h0  # (B, H, K, V)
    decay = None if log_decay is None else _decay(log_decay)
    outputs = []
    for t in range(length):
        if resets is not None:
            state = state.masked_fill(resets[:, t, None, None, None], 0.0)
        decayed = state if decay is None else decay[:, t] * state  # (B, H, K, V)
        if beta is not None:
            error = v[:, t] - _read(k[:, t], decayed)  # (B, H, V)
            state = decayed + _outer(k[:, t], beta[:, t, :, None] * error)
        else:
            assert a is not None
            assert b is not None
            state = decayed + _outer(b[:, t], _read(a[:, t], state)) + _outer(k[:, t], v[:, t])
        outputs.append(_read(q[:, t], state))
    return torch.stack(outputs, 1), state


def _decay(log_decay: Tensor) -> Tensor:
    """What the state (B, H, K, V) is multiplied with: (B, T, H, 1 or K, 1)."""
    a = log_decay.exp()
    return (a if a.dim() == 4 else a.unsqueeze(-1)).unsqueeze(-1)


def _read(x: Tensor, state: Tensor) -> Tensor:
    """x^T S: (B, H, K) and (B, H, K, V) -> (B, H, V)."""
    return (x[..., :, None] * state).sum(-2)


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """x y^T: (B, H, K) and (B, H, V) -> (B, H, K, V)."""
    return x[..., :, None] * y[..., None, :]
