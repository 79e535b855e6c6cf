"""The delta scan in C++: hand-written forward and backward, vectorised, threaded over sequences and groups of heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssm_kernels.delta_scan.inputs import Inputs, Options
from ssm_kernels.native import why_not
from ssm_kernels.native.matrix_scan import MatrixScan

SCAN = MatrixScan("delta_scan", kinds={3: 1, 4: 2})
SOURCE = SCAN.source
CHUNK = 64  # tokens between the states that are kept for the backward pass; CHUNK of problem.h
TOKENS = 16  # that are solved together where a decay is a head's; TOKENS of problem.h
ZERO_DSTATE_IS_NONE = True


def unavailable(device: torch.device) -> str | None:
    """It needs the CPU and a C++ compiler."""
    return why_not(SOURCE) if device.type == "cpu" else f"it runs on the CPU, not on {device.type}"


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """Of every head, (B, H, numbers): the states that chunks start from, (kept, K, V), but for the first one's, which
    is h0 or zeros; and of every step V numbers, what it read of its state or, of the delta rule, v minus that. Of the
    delta rule with decays by head also its products with the keys and queries of its block, 2 TOKENS."""
    B, T, H, V = inputs.v.shape
    kept = (T - 1) // CHUNK
    by_head = inputs.beta is not None and (inputs.log_decay is None or inputs.log_decay.dim() == 3)
    return B, H, kept * inputs.k.shape[3] * V + T * (V + (2 * TOKENS if by_head else 0))


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the final state, and what is kept for the backward pass."""
    return SCAN.forward(inputs, saved_shape(inputs, options) if save else None)


def backward(
    dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """A gradient for every input but resets, in the compute dtype."""
    return SCAN.backward(dy, dstate, saved, inputs)
