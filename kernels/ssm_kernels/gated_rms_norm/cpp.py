"""The gated RMSNorm in C++ (gated_rms_norm.cpp): one pass over memory in each direction."""

from __future__ import annotations

from functools import partial
from math import prod

import torch
from torch import Tensor

from ssm_kernels.dtypes import cast, compute_dtype
from ssm_kernels.gated_rms_norm.inputs import Inputs, Options
from ssm_kernels.native import why_not_on
from ssm_kernels.native.call import call, dense, with_rows

SOURCE = "gated_rms_norm/gated_rms_norm.cpp"
ZERO_DSTATE_IS_NONE = True

unavailable = partial(why_not_on, SOURCE)


def saved_shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """(..., G): 1 / sqrt(mean square + eps) of every group."""
    return (*inputs.x.shape[:-1], options.groups)


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (..., D), an empty state, and the scale of every group (..., G)."""
    x, weight, gate = _rows(inputs)
    y, scales = x.new_empty(inputs.x.shape), x.new_empty(saved_shape(inputs, options))
    tensors = (x, x.stride(0), gate, 0 if gate is None else gate.stride(0), weight, y, scales)
    call(SOURCE, "gated_rms_norm_forward", x.dtype, *tensors, *x.shape, options.groups, options.eps)
    return cast(y, inputs.x.dtype), x.new_empty(0), scales if save else x.new_empty(0)


def backward(
    dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight and gate."""
    x, weight, gate = _rows(inputs)
    rows, D = x.shape
    dy = with_rows(dy.reshape(rows, D), x.dtype)
    dx, dgate = x.new_empty(inputs.x.shape), None if gate is None else x.new_empty(inputs.x.shape)
    dweight = torch.empty_like(weight)
    tensors = (dy, dy.stride(0), x, x.stride(0), gate, 0 if gate is None else gate.stride(0), weight, saved)
    results = (dx, dgate, dweight)
    call(SOURCE, "gated_rms_norm_backward", x.dtype, *tensors, *results, rows, D, options.groups)
    return dx, dweight, dgate


def _rows(inputs: Inputs) -> Inputs:
    """The inputs in the compute dtype, with x and gate as rows (R, D). Slices of rows are not copied."""
    x, weight, gate = inputs
    dtype, shape = compute_dtype(*inputs), (prod(x.shape[:-1]), x.shape[-1])
    return Inputs(
        with_rows(x.reshape(shape), dtype),
        dense(weight, dtype),
        None if gate is None else with_rows(gate.reshape(shape), dtype),
    )
