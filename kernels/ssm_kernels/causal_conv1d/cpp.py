"""The causal convolution in C++ (causal_conv1d.cpp): bias and SiLU in the same pass, forward and backward."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.native import why_not_on
from ssm_kernels.native.call import call, with_rows

SOURCE = "causal_conv1d/causal_conv1d.cpp"
ZERO_DSTATE_IS_NONE = True

unavailable = partial(why_not_on, SOURCE)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """Empty: backward computes the values before the activation again."""
    return (0,)


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, D) and the last inputs, which are the next state (B, K - 1, D)."""
    x, weight, bias, state, reach = _prepared(inputs)
    (B, T, D), K = x.shape, weight.shape[0]
    y = x.new_empty(B, T, D)
    tensors = (x, x.stride(0), x.stride(1), weight, bias, state, reach, y)
    call(SOURCE, "causal_conv1d_forward", x.dtype, *tensors, B, T, D, K, options.activation == "silu")
    after = torch.cat([state, x[:, max(0, T - K + 1) :]], 1)[:, -(K - 1) :] if K > 1 else state  # (B, K - 1, D)
    after = after.masked_fill(_forgotten(inputs.resets, K), 0) if inputs.resets is not None else after.clone()
    return y.to(inputs.x.dtype), after, x.new_empty(0)


def backward(
    dy: Tensor, dafter: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight, bias and state."""
    x, weight, bias, state, reach = _prepared(inputs)
    (B, T, D), K = x.shape, weight.shape[0]
    dy = with_rows(dy, x.dtype)
    dx, dstate, sums = x.new_empty(B, T, D), torch.empty_like(state), x.new_empty(K + 1, D)
    tensors = (dy, dy.stride(0), dy.stride(1), x, x.stride(0), x.stride(1), weight, bias, state, reach)
    results = (dx, sums, dstate)
    call(SOURCE, "causal_conv1d_backward", x.dtype, *tensors, *results, B, T, D, K, options.activation == "silu")
    if dafter is not None:
        if inputs.resets is not None:
            dafter = dafter.masked_fill(_forgotten(inputs.resets, K), 0)
        came_in = max(0, K - 1 - T)  # inputs that are in both states
        dstate[:, K - 1 - came_in :] += dafter[:, :came_in]
        dx[:, T - (K - 1 - came_in) :] += dafter[:, came_in:]
    return dx, sums[:K].t().contiguous(), sums[K].clone(), dstate, None


def _prepared(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """x, weight (K, D), bias and state (zeros if None) in the compute dtype, and the visible steps before each step."""
    x, weight, bias, state, resets = inputs
    dtype, (B, _, D), K = compute_dtype(*inputs), x.shape, weight.shape[1]
    x = with_rows(x, dtype)
    return (
        x,
        weight.to(dtype).t().contiguous(),
        x.new_zeros(D) if bias is None else bias.to(dtype).contiguous(),
        x.new_zeros(B, K - 1, D) if state is None else state.to(dtype).contiguous(),
        None if resets is None else (_steps(resets) - _last_reset(resets, K)).clamp(max=K - 1).to(torch.int32),
    )


def _steps(resets: Tensor) -> Tensor:
    return torch.arange(resets.shape[1], device=resets.device)  # (T,)


def _last_reset(resets: Tensor, K: int) -> Tensor:
    """(B, T): the last step with a reset at or before each step; -K if there is none."""
    return torch.where(resets, _steps(resets), -K).cummax(1).values


def _forgotten(resets: Tensor, K: int) -> Tensor:
    """(B, K - 1, 1): whether each of the last K - 1 inputs comes before the last reset."""
    T = resets.shape[1]
    steps = torch.arange(T - K + 1, T, device=resets.device)  # (K - 1,)
    return (steps < _last_reset(resets, K)[:, -1:]).unsqueeze(-1)
