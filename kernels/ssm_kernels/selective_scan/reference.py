"""The oracle: the definition of the recurrence, one step at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.selective_scan.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t and y_t = (C_t . h_t + D u_t) silu(z_t)."""
    u, dt, A, B, C, D, dt_bias, z, h0, resets = inputs
    delta = dt if dt_bias is None else dt + dt_bias  # (B, T, D)
    delta = F.softplus(delta, threshold=50.0) if options.dt_softplus else delta
    forgets = torch.isneginf(A)  # (D, N)
    finite = A.masked_fill(forgets, 0.0)
    h = u.new_zeros(u.shape[0], *A.shape) if h0 is None else h0  # (B, D, N)
    outputs = []
    for t, (u_t, delta_t, B_t, C_t) in enumerate(zip(*(x.unbind(1) for x in (u, delta, B, C)), strict=True)):
        decay = (delta_t[..., None] * finite).exp().masked_fill(forgets, 0.0)  # (B, D, N)
        if resets is not None:
            h = h.masked_fill(resets[:, t, None, None], 0.0)
        h = decay * h + (delta_t * u_t)[..., None] * B_t[:, None]  # (B, D, N)
        outputs.append((h * C_t[:, None]).sum(-1))  # (B, D)
    y = torch.stack(outputs, 1)  # (B, T, D)
    y = y if D is None else y + D * u
    return y if z is None else y * F.silu(z), h
