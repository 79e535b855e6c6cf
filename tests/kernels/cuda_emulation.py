"""Run the CUDA kernels on CPU tensors: the C++ compiler compiles their source with an emulation of CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from ssm_kernels.native import cuda as native
from ssm_kernels.native.compiler import NativeUnavailable, find_compiler


def compiler_missing() -> str | None:
    """Why the emulation cannot be compiled, or None."""
    try:
        find_compiler()
    except NativeUnavailable as error:
        return str(error)
    return None


@contextmanager
def turns(order: int, source: str, *defines: str) -> Iterator[None]:
    """Within this block, the threads of this library run in another order: see cuda_on_cpu_order."""
    library = native.load(source, defines, torch.device("cpu"))
    library.cuda_on_cpu_order(order)
    try:
        yield
    finally:
        library.cuda_on_cpu_order(0)
