"""The gated scan in C++: vectorized forward and backward passes, with threads over sequences and groups of heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.native import why_not_on
from ssm_kernels.native.matrix_scan import MatrixScan

SCAN = MatrixScan("gated_scan", kinds={1: 1, 3: 2, 4: 3})
SOURCE = SCAN.source
CHUNK = 32  # tokens between states that are stored for the backward pass; equals CHUNK in problem.h
ZERO_DSTATE_IS_NONE = True

unavailable = partial(why_not_on, SOURCE)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """(B, H, kept, K, V): the states at chunk starts. Without h0, the zeros of the first chunk are not stored."""
    B, T, H, V = inputs.v.shape
    return B, H, -(-T // CHUNK) - int(inputs.h0 is None), inputs.k.shape[3], V  # int: T may be symbolic


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the final state, and the states for the backward pass."""
    return SCAN.forward(inputs, saved_shape(inputs, options) if save else None)


def backward(
    dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of q, k, v, log_decay, h0 and bonus, in the compute dtype."""
    return SCAN.backward(dy, dstate, saved, inputs)
