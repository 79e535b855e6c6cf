"""The causal convolution in C++ (causal_conv1d.cpp): bias and SiLU in the same pass, forward and backward."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options
from ssm_kernels.dtypes import cast, compute_dtype
from ssm_kernels.native import why_not_on
from ssm_kernels.native.call import call, dense, with_rows

SOURCE = "causal_conv1d/causal_conv1d.cpp"
ZERO_DSTATE_IS_NONE = True

unavailable = partial(why_not_on, SOURCE)


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (B, T, D) and the last inputs, which are the next state (B, K - 1, D)."""
    x, *others = _dense(inputs)
    (B, T, D), K = x.shape, inputs.weight.shape[1]
    y, after = x.new_empty(B, T, D), x.new_empty(B, K - 1, D)
    tensors = (x, x.stride(0), x.stride(1), *others, y, after)
    call(SOURCE, "causal_conv1d_forward", x.dtype, *tensors, B, T, D, K, options.activation == "silu")
    return cast(y, inputs.x.dtype), after, x.new_empty(0)


def backward(
    dy: Tensor, dafter: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight, bias and state."""
    x, weight, bias, state, resets = _dense(inputs)
    (B, T, D), K = x.shape, weight.shape[1]
    dy, dafter = with_rows(dy, x.dtype), None if dafter is None else dafter.contiguous()
    dx, dweight = x.new_empty(B, T, D), torch.empty_like(weight)
    dbias, dstate = (None if to is None else torch.empty_like(to) for to in (bias, state))
    tensors = (dy, dy.stride(0), dy.stride(1), dafter, x, x.stride(0), x.stride(1), weight, bias, state, resets)
    results = (dx, dweight, dbias, dstate)
    call(SOURCE, "causal_conv1d_backward", x.dtype, *tensors, *results, B, T, D, K, options.activation == "silu")
    return dx, dweight, dbias, dstate, None


def _dense(inputs: Inputs) -> Inputs:
    """The inputs in the compute dtype. Slices of rows of x are not copied, all other tensors are contiguous."""
    x, weight, bias, state, resets = inputs
    dtype = compute_dtype(*inputs)
    return Inputs(
        with_rows(x, dtype),
        dense(weight, dtype),
        dense(bias, dtype),
        dense(state, dtype),
        None if resets is None else resets.contiguous(),
    )
