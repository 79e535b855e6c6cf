"""Call compiled C functions with tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ssm_kernels.dtypes import cast
from ssm_kernels.native import load

Given = TypeVar("Given", Tensor, Tensor | None)

# Suffix of a function's name, by the dtype that it computes in.
SUFFIXES = {torch.float32: "f32", torch.float64: "f64", torch.complex64: "c64", torch.complex128: "c128"}


def call(source: str, function: str, dtype: torch.dtype, *arguments: Tensor | int | float | None) -> None:
    """Call the extern "C" function `<function>_<suffix of dtype>` of a source file, with the thread count added.

    Args:
        source: as in `load`.
        function: name of the function without its suffix.
        dtype: dtype of the tensors in `arguments`; see SUFFIXES.
        arguments: tensors and None become pointers, integers int64_t, floats double. The caller makes sure that tensors
            have the right dtype and layout.

    Raises:
        MemoryError: see `check`.
    """
    compiled = getattr(load(source), f"{function}_{SUFFIXES[dtype]}")
    if compiled.argtypes is None:
        compiled.argtypes = [*map(_kind, arguments), ctypes.c_int64]
    check(compiled(*addresses(arguments), torch.get_num_threads()), function)


def check(code: int, function: str) -> None:
    """Raise the error that an exported function reports; see `guarded` in threads.h.

    Raises:
        MemoryError: there was not enough memory for temporary data. The outputs are undefined.
    """
    if code:
        raise MemoryError(f"{function}: not enough memory")


def with_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, with a contiguous last dimension. Other strides stay, so that a slice is not copied."""
    x = cast(x, dtype)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def dense(x: Given, dtype: torch.dtype) -> Given:
    """x in `dtype`, contiguous. None stays None."""
    return x if x is None else cast(x, dtype).contiguous()


def addresses(values: Iterable[Any]) -> list[Any]:
    """Addresses of tensors, for c_void_p; None and numbers are returned unchanged."""
    return [value.data_ptr() if isinstance(value, Tensor) else value for value in values]


def _kind(value: Tensor | int | float | None) -> type:
    """The C type of an argument."""
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p
    return ctypes.c_double if isinstance(value, float) else ctypes.c_int64
