"""The oracle: one step at a time, with a sliding window over the last K inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options


def run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """y_t = act(bias + sum_i w_i x_{t-K+1+i}); a reset clears the window."""
    x, weight, bias, state, resets = inputs
    batch, _, channels = x.shape
    before = x.new_zeros(batch, weight.shape[1] - 1, channels) if state is None else state
    window = list(before.unbind(1))  # K - 1 of (B, D), oldest first
    outputs = []
    for t, x_t in enumerate(x.unbind(1)):
        if resets is not None:
            window = [value.masked_fill(resets[:, t, None], 0.0) for value in window]
        window.append(x_t)
        y = torch.zeros_like(x_t) if bias is None else bias.expand_as(x_t)  # (B, D)
        for value, weight_i in zip(window, weight.unbind(1), strict=True):
            y = y + value * weight_i
        outputs.append(F.silu(y) if options.activation == "silu" else y)
        window = window[1:]
    after = torch.stack(window, 1) if window else before
    return torch.stack(outputs, 1), after
