"""The gated scan in Triton: matrix products inside chunks of up to 64 tokens, and a recurrence over chunk states.

The forward pass computes the states before all chunks, then the outputs. The backward pass computes these states again,
then the gradients of the states after all chunks, then the gradients inside chunks. There are no atomics, so equal
calls give equal bits.

Products of float32 inputs are TF32x3. For bfloat16 and float16 inputs, every float32 operand is split into two bfloat16
numbers. Its error of 2^-17 is below the rounding of the outputs. All sums are in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ssm_kernels.gated_scan import triton_head, triton_key
from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.gated_scan.triton_states import by_group, pass_states, problem
from ssm_kernels.native.triton_launch import unavailable

__all__ = ["backward", "forward", "unavailable"]


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, H, V) and the final state (B, H, K, V)."""
    p = problem(inputs)
    states, last = pass_states(p, p.k, p.v, inputs.h0, reverse=False)
    y = (triton_key if p.decay == "key" else triton_head).forward(p, states)
    return y, last, last.new_empty(0)


def backward(
    dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> Sequence[Tensor | None]:
    """Gradients of q, k, v, log_decay, h0 and bonus."""
    p = problem(inputs)
    states, _ = pass_states(p, p.k, p.v, inputs.h0, reverse=False)
    leaving, dh0 = pass_states(p, p.q, dy, dstate, reverse=True)
    module = triton_key if p.decay == "key" else triton_head
    dq, dk, dv, dlog_decay, dbonus = module.backward(p, dy, states, leaving)
    if p.decay == "constant" and dlog_decay is not None:
        dlog_decay = dlog_decay.sum((0, 1))
    return by_group(dq, p.sizes[2]), by_group(dk, p.sizes[2]), dv, dlog_decay, dh0, dbonus, None
