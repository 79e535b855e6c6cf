"""The gated RMSNorm in PyTorch: its own silu and rms_norm, differentiated by autograd."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.gated_rms_norm.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """Gate, then normalize each group's channels."""
    x, weight, gate = inputs
    gated = x if gate is None else x * F.silu(gate)  # (..., D)
    if options.groups == 1:
        return F.rms_norm(gated, weight.shape, weight, eps=options.eps), x.new_empty(0)
    width = weight.shape[0] // options.groups
    grouped = gated.unflatten(-1, (options.groups, width))  # (..., G, D / G)
    return F.rms_norm(grouped, (width,), eps=options.eps).flatten(-2) * weight, x.new_empty(0)
