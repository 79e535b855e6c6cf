"""The oracle: the definition of the recurrence, one step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ssm_kernels.delta_scan.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """S_t by the delta rule or in the generalized form (see `ssm_kernels.delta_scan`); y_t = q_t^T S_t."""
    q, k, v, beta, log_decay, h0, a, b, resets = inputs
    batch, length, heads, value_dim = v.shape
    groups, key_dim = k.shape[2:]
    q, k = (x.repeat_interleave(heads // groups, dim=2) for x in (q, k))  # (B, T, H, K)
    state = v.new_zeros(batch, heads, key_dim, value_dim) if h0 is None else h0  # (B, H, K, V)
    steps = zip(*(_steps(x, length) for x in (q, k, v, beta, _decay(log_decay), a, b, resets)), strict=True)
    outputs = []
    for q_t, k_t, v_t, beta_t, a_t, reader, writer, reset in steps:
        if reset is not None:
            state = state.masked_fill(reset[:, None, None, None], 0.0)
        decayed = state if a_t is None else a_t * state  # (B, H, K, V)
        if beta_t is not None:
            state = decayed + _outer(k_t, beta_t.unsqueeze(-1) * (v_t - _read(k_t, decayed)))
        else:
            state = decayed + _outer(writer, _read(reader, state)) + _outer(k_t, v_t)
        outputs.append(_read(q_t, state))
    return torch.stack(outputs, 1), state


def _steps(x: Tensor | None, length: int) -> Sequence[Any]:
    """The steps of a tensor; `length` times None if there is no tensor."""
    return (None,) * length if x is None else x.unbind(1)


def _decay(log_decay: Tensor | None) -> Tensor | None:
    """The decays, (B, T, H, 1 or K, 1), which multiply the state (B, H, K, V)."""
    if log_decay is None:
        return None
    a = log_decay.exp()
    return (a if a.dim() == 4 else a.unsqueeze(-1)).unsqueeze(-1)


def _read(x: Tensor, state: Tensor) -> Tensor:
    """x^T S: (B, H, K) and (B, H, K, V) -> (B, H, V)."""
    return (x[..., :, None] * state).sum(-2)


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """x y^T: (B, H, K) and (B, H, V) -> (B, H, K, V)."""
    return x[..., :, None] * y[..., None, :]
