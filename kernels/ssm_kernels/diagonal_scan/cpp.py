"""The diagonal scan in C++ (diagonal_scan.cpp): one pass over memory in each direction."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ssm_kernels.diagonal_scan.inputs import Inputs, Options, gradient_like
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.native import why_not_on
from ssm_kernels.native.call import call, dense

SOURCE = "diagonal_scan/diagonal_scan.cpp"

unavailable = partial(why_not_on, SOURCE)


def forward(inputs: Inputs, options: Options, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All states (B, T, D) and the last state (B, D)."""
    a, b, h0, resets = _dense(inputs)
    B, T, D = b.shape
    h, hT = torch.empty_like(b), b.new_empty(B, D)
    call(SOURCE, "diagonal_scan_forward", b.dtype, a, b, h0, resets, h, hT, B, T, D, a.dim() == 1)
    return h, hT, b.new_empty(0)


def backward(
    dy: Tensor, dhT: Tensor, saved: Tensor, y: Tensor | None, inputs: Inputs, options: Options
) -> tuple[Tensor | None, ...]:
    """Gradients of a, b and h0, computed from the last step to the first."""
    assert y is not None  # the Operator keeps the output
    a, b, h0, resets = _dense(inputs)
    B, T, D = b.shape
    da, db, dh0 = torch.empty_like(a), torch.empty_like(b), None if h0 is None else torch.empty_like(h0)
    tensors = (dy.contiguous(), dhT.contiguous(), a, y.contiguous(), h0, resets, da, db, dh0)
    call(SOURCE, "diagonal_scan_backward", b.dtype, *tensors, B, T, D, a.dim() == 1)
    if inputs.h0 is not None and dh0 is not None:
        dh0 = gradient_like(dh0, inputs.h0)
    return gradient_like(da, inputs.a), gradient_like(db, inputs.b), dh0, None


def _dense(inputs: Inputs) -> Inputs:
    """The inputs in the compute dtype, contiguous."""
    a, b, h0, resets = inputs
    dtype = compute_dtype(*inputs)
    return Inputs(
        dense(a, dtype),
        dense(b, dtype),
        dense(h0, dtype),
        None if resets is None else resets.contiguous(),
    )
