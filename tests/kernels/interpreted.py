"""Triton's interpreter for tests: kernels run step by step on CPU tensors, in a separate process.

Triton reads TRITON_INTERPRET when it defines a kernel, so a process interprets all kernels or compiles all kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest import mock

import torch
from ssm_kernels.benchmarks.on_gpu.stand_ins import vectorize_scans

Call = Callable[..., Any]


@contextmanager
def interpreter() -> Iterator[Call]:
    """Return a function `call(function, *args)` that runs in a process with interpreted Triton kernels."""
    environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, environment):
            pool.submit(_prepare).result()  # starts the process
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


def _prepare() -> None:
    torch.set_num_threads(1)
    vectorize_scans()
