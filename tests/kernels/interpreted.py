"""Triton's interpreter for tests: kernels run step by step on CPU tensors, in a separate process.

Triton reads TRITON_INTERPRET when it defines a kernel, so a process interprets all kernels or compiles all kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest import mock

import numpy as np
import torch

Call = Callable[..., Any]


@contextmanager
def interpreter() -> Iterator[Call]:
    """Return a function `call(function, *args)` that runs in a process with interpreted Triton kernels."""
    environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, environment):
            pool.submit(vectorize_scans).result()  # starts the process
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


def vectorize_scans() -> None:
    """Combine whole slices in the interpreter's associative scan. Its loop over elements takes minutes."""
    from triton.runtime.interpreter import ScanOps

    torch.set_num_threads(1)
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
