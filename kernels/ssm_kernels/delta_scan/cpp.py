"""The delta scan in C++: vectorized forward and backward passes, with threads over sequences and groups of heads.

The forward pass of few heads has threads over columns of the values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from ssm_kernels.delta_scan.inputs import Inputs, Options
from ssm_kernels.native import why_not_on
from ssm_kernels.native.matrix_scan import MatrixScan

SCAN = MatrixScan("delta_scan", kinds={3: 1, 4: 2})
SOURCE = SCAN.source
CHUNK = 64  # tokens between states that are stored for the backward pass; equals CHUNK in problem.h
TOKENS = 16  # tokens that are solved together if decays are per head; equals TOKENS in problem.h
ZERO_DSTATE_IS_NONE = True

unavailable = partial(why_not_on, SOURCE)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """(B, H, numbers). For each head these numbers are:

    - the states at chunk starts (kept, K, V), without that of the first chunk, which is h0 or zeros;
    - V numbers per step: the values that it read from its state, or v minus these for the delta rule;
    - 2 TOKENS numbers per step, for the delta rule with decays per head: products with keys and queries of its block.
    """
    B, T, H, V = inputs.v.shape
    kept = (T - 1) // CHUNK
    by_head = inputs.beta is not None and (inputs.log_decay is None or inputs.log_decay.dim() == 3)
    return B, H, kept * inputs.k.shape[3] * V + T * (V + (2 * TOKENS if by_head else 0))


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the final state, and the numbers for the backward pass."""
    return SCAN.forward(inputs, saved_shape(inputs, options) if save else None)


def backward(
    dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """A gradient for every input but resets, in the compute dtype."""
    return SCAN.backward(dy, dstate, saved, inputs)
