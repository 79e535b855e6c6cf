"""Other packages' kernels for GPUs, which transformers puts before its own formulas."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import isfunction, unwrap


@contextmanager
def without_kernels(code: Sequence[str]) -> Iterator[None]:
    """Their own formulas, without the kernels for GPUs that stand before them where other packages brought them.

    The kernels come back behind it: other models, and this one on a GPU, have the same functions.

    Args:
        code: names of Python modules.
    """
    wrapped = []
    for name in code:
        own = vars(sys.modules[name])
        found = {key: f for key, f in own.items() if isfunction(f) and f.__module__ == name and unwrap(f) is not f}
        wrapped.append((own, found))
    try:
        for own, found in wrapped:
            own.update({key: unwrap(f) for key, f in found.items()})
        yield
    finally:
        for own, found in wrapped:
            own.update(found)
