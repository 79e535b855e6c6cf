"""The oracle: the definition of the recurrence, one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm_kernels.diagonal_scan.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """h_t = a_t * h_{t-1} + b_t; a reset makes a_t zero."""
    a, b, h0, resets = inputs
    decays = a.unbind(1) if a.dim() == 3 else (a,) * b.shape[1]  # T of (B, D) or (D,)
    h = torch.zeros_like(b[:, 0]) if h0 is None else h0  # (B, D)
    states = []
    for t, (a_t, b_t) in enumerate(zip(decays, b.unbind(1), strict=True)):
        h = h if resets is None else h.masked_fill(resets[:, t, None], 0)
        h = a_t * h + b_t  # (B, D)
        states.append(h)
    return torch.stack(states, 1), h.clone()
