"""Calls of compiled functions on tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from ssm_kernels.native import load

# What a function's name ends in, by the dtype that it computes in.
SUFFIXES = {torch.float32: "f32", torch.float64: "f64", torch.complex64: "c64", torch.complex128: "c128"}


def call(source: str, function: str, dtype: torch.dtype, *arguments: Tensor | int | float | None) -> None:
    """Call the extern "C" function `<function>_<suffix of dtype>` of a source file; the number of threads comes last.

    Args:
        source: as in `load`.
        function: its name without the suffix.
        dtype: that of the tensors in `arguments`; see SUFFIXES.
        arguments: tensors and None become pointers, integers int64_t, floats double. Tensors are the caller's to keep
            in the right dtype and layout.

    Raises:
        MemoryError: see `check`.
    """
    compiled = getattr(load(source), f"{function}_{SUFFIXES[dtype]}")
    if compiled.argtypes is None:
        compiled.argtypes = [*map(_kind, arguments), ctypes.c_int64]
    check(compiled(*map(address, arguments), torch.get_num_threads()), function)


def check(code: int, function: str) -> None:
    """Raise what an exported function reports; see `guarded` of threads.h.

    Raises:
        MemoryError: it had not enough memory for its scratch; what it was to write is undefined.
    """
    if code:
        raise MemoryError(f"{function}: not enough memory")


def with_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, its last dimension contiguous; the others as they lie, so that a slice need not be copied."""
    x = x.to(dtype)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def address(value: Any) -> Any:
    """A tensor's address for a c_void_p; None and numbers as they are."""
    return value.data_ptr() if isinstance(value, Tensor) else value


def _kind(value: Tensor | int | float | None) -> type:
    """The C type of an argument."""
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p
    return ctypes.c_double if isinstance(value, float) else ctypes.c_int64
