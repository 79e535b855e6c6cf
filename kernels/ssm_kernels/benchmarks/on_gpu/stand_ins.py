"""What stands in for a GPU in tests and rehearsals: Triton's interpreter, and the emulation of CUDA on the CPU.

Triton reads TRITON_INTERPRET when it defines a kernel. So set it before kernels are imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

_installed = ExitStack()  # to the end of the process


def install() -> None:
    """Let this process run all backends on CPU tensors, with one thread."""
    torch.set_num_threads(1)
    vectorize_scans()
    _installed.enter_context(emulated())


@contextmanager
def emulated(processors: int = 132) -> Iterator[None]:
    """Within this block, backend "cuda" takes CPU tensors, as on a GPU with this number of multiprocessors."""
    from ssm_kernels.causal_conv1d import cuda as convolution
    from ssm_kernels.native import cuda as native
    from ssm_kernels.selective_scan import cuda as scan

    with ExitStack() as stack:
        for module in (scan, convolution):
            stack.enter_context(mock.patch.object(module, "unavailable", return_value=None))
        stack.enter_context(mock.patch.object(native, "multiprocessors", return_value=processors))
        yield


def vectorize_scans() -> None:
    """Combine whole slices in the interpreter's associative scan. Its loop over elements takes minutes."""
    from triton.runtime.interpreter import ScanOps

    ScanOps.generic_scan = _scan_slices


def _scan_slices(self: Any, values: Sequence[Any]) -> list[Any]:
    slices = [np.moveaxis(x.handle.data, self.axis, 0) for x in values]  # the scanned axis first
    state = [self.to_tensor(np.array(x[0]), value.dtype) for x, value in zip(slices, values, strict=True)]
    results = [[x.handle.data] for x in state]
    for i in range(1, len(slices[0])):
        step = [self.to_tensor(np.array(x[i]), value.dtype) for x, value in zip(slices, values, strict=True)]
        combined = self.combine_fn.fn(*state, *step)
        state = list(combined) if isinstance(combined, tuple) else [combined]
        for result, x in zip(results, state, strict=True):
            result.append(x.handle.data)
    return [
        self.to_tensor(
            np.ascontiguousarray(np.moveaxis(np.stack(result).reshape(slices[0].shape), 0, self.axis)), value.dtype
        )
        for result, value in zip(results, values, strict=True)
    ]
