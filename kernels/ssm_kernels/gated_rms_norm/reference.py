"""The oracle: the definition."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm_kernels.gated_rms_norm.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """y = weight * g / sqrt(mean(g^2) + eps) by group, with g = x * gate * sigmoid(gate)."""
    x, weight, gate = inputs
    gated = x if gate is None else x * gate * torch.sigmoid(gate)  # (..., D)
    grouped = gated.reshape(*x.shape[:-1], options.groups, x.shape[-1] // options.groups)  # (..., G, D / G)
    mean_square = (grouped * grouped).mean(-1, keepdim=True)  # (..., G, 1)
    normalized = grouped / torch.sqrt(mean_square + options.eps)
    return normalized.reshape(x.shape) * weight, x.new_empty(0)
