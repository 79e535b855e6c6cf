"""GPU kernels of other packages, with which transformers replaces its own functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import isfunction, unwrap


@contextmanager
def without_kernels(code: Sequence[str]) -> Iterator[None]:
    """Use transformers' own PyTorch functions instead of GPU kernels, inside this context.

    At the end the kernels are restored, because other models, and this model on a GPU, use the same functions.

    Args:
        code: names of Python modules.
    """
    replaced = []
    for name in code:
        module = vars(sys.modules[name])
        kernels = {key: f for key, f in module.items() if isfunction(f) and f.__module__ == name and unwrap(f) is not f}
        replaced.append((module, kernels))
    try:
        for module, kernels in replaced:
            module.update({key: unwrap(f) for key, f in kernels.items()})
        yield
    finally:
        for module, kernels in replaced:
            module.update(kernels)
