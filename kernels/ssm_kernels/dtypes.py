"""The dtype that an operation computes in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """The widest dtype among the inputs, at least float32; complex if any input is complex."""
    dtype = torch.float32
    for x in tensors:
        if x is not None and x.dtype is not dtype and differentiable(x):
            dtype = torch.promote_types(dtype, x.dtype)
    return dtype


def upcast_inputs(inputs: Any) -> Any:
    """The same inputs with every floating-point tensor in the compute dtype. Real tensors stay real."""
    dtype = compute_dtype(*inputs)
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
    return type(inputs)(
        *(x if x is None or not differentiable(x) else cast(x, dtype if x.dtype.is_complex else real) for x in inputs)
    )


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`. Without the comparison, `to` takes a microsecond where nothing changes."""
    return x if x.dtype is dtype else x.to(dtype)


def differentiable(x: Tensor) -> bool:
    """Whether a tensor's dtype can have gradients. Resets (bool) cannot."""
    return x.dtype.is_floating_point or x.dtype.is_complex
