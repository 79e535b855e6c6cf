"""Functions of transformers' modules that ssm replaces during a forward pass: GPU kernels and scans."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import isfunction, unwrap
from typing import Any

import torch
from torch import Tensor

SCAN = re.compile("scan|state_update|delta")  # part of the names of transformers' functions that compute a recurrence
HALF = (torch.bfloat16, torch.float16)


def without_kernels(code: Sequence[str]) -> AbstractContextManager[None]:
    """Use transformers' own PyTorch functions instead of GPU kernels of other packages, inside this context.

    Args:
        code: names of Python modules.
    """
    return _replaced(code, unwrap)


def scans_in_float32(code: Sequence[str], device: str) -> AbstractContextManager[None]:
    """Compute recurrences in float32 in spite of autocast, inside this context.

    In bfloat16 a state would not decay at all by a factor above 0.998.

    Args:
        code: names of Python modules.
        device: the type of the device, for example "cuda".
    """

    def change(function: Callable[..., Any]) -> Callable[..., Any]:
        return _in_float32(function, device) if _is_scan(function) else function

    return _replaced(code, change)


def has_scans(code: Sequence[str]) -> bool:
    """Whether these Python modules compute recurrences in functions of their own, which can be replaced."""
    return any(_is_scan(function) for name in code for function in _functions(name).values())


@contextmanager
def _replaced(code: Sequence[str], change: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the functions of Python modules inside this context.

    At the end they are restored, because other models, and this model elsewhere, use the same functions.
    """
    modules = [(vars(sys.modules[name]), _functions(name)) for name in code]
    try:
        for module, functions in modules:
            module.update({key: change(function) for key, function in functions.items()})
        yield
    finally:
        for module, functions in modules:
            module.update(functions)


def _functions(name: str) -> dict[str, Callable[..., Any]]:
    """The functions that a Python module defines."""
    return {key: f for key, f in vars(sys.modules[name]).items() if isfunction(f) and f.__module__ == name}


def _is_scan(function: Callable[..., Any]) -> bool:
    return SCAN.search(function.__name__) is not None


def _in_float32(scan: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The function with its inputs in float32. A state that it updates in place is in float32 already."""

    @wraps(scan)
    def computed(*inputs: Any, **options: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return scan(*map(_upcast, inputs), **{key: _upcast(value) for key, value in options.items()})

    return computed


def _upcast(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value
