"""The tables of (operation, backend, variant) that the tests run over, and random cases for Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from ssm_kernels import backends
from ssm_kernels.testing.cases import DECAYS, EVERY, NORM, Case, make, variants
from ssm_kernels.testing.numerics import content, with_gradients, worst
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CPU = torch.device("cpu")


def pairs(operations: Sequence[str]) -> list[tuple[str, str]]:
    """All (operation, backend) that this machine can run on CPU tensors."""
    return [
        (operation, name)
        for operation in operations
        for name in backends.available(operation)
        if name != "reference" and backends.unavailable(operation, name, CPU) is None
    ]


PAIRS = pairs(EVERY)


def cases(
    operation: str,
    longest: int = 300,
    widest: int = 19,
    states: Sequence[int] = tuple(range(1, 10)),
) -> st.SearchStrategy[Case]:
    """Random cases for Hypothesis."""
    return st.builds(
        make,
        operation=st.just(operation),
        seed=st.integers(0, 2**31),
        length=st.one_of(st.integers(1, 20), st.integers(1, longest)),
        batch=st.integers(1, 3),
        width=st.one_of(st.integers(1, 19), st.integers(1, widest)),
        state=st.sampled_from(states),
        decay=st.sampled_from(DECAYS),
        variant=st.sampled_from(range(32)),
        resets=st.sampled_from((0.0, 0.05, 0.5)),
        start=st.booleans(),
    )


# Tables for parametrize: every operation on every backend that runs here, with all variants (ALL) or the first (EACH).
# Exhaustive runs repeat a test with a `backend` argument for every instruction set (see conftest.py).
ALL = [(operation, backend, variant) for operation, backend in PAIRS for variant in variants(operation)]
EACH = [(operation, backend, variants(operation)[0]) for operation, backend in PAIRS]
WITH_STATE = [case for case in ALL if case[0] != NORM]
CPP = [case for case in ALL if case[1] == "cpp"]
MOST = [*CPP, *(case for case in EACH if case not in CPP)]  # all variants in C++, the first variant elsewhere
ROW = ("operation", "backend", "variant")


def exhaustive(*rows: Any) -> list[Any]:
    """Rows of a parametrize table that run only with `-m exhaustive`."""
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.exhaustive) for row in rows]


_oracle: dict[tuple[str, str, bytes], list[Tensor]] = {}


def exact(case: Case) -> list[Tensor]:
    """Outputs and gradients of the oracle in float64 on the same numbers. Computed once for all backends."""
    wide = case.to(torch.float64)
    key = (case.operation, str(case.options | {"chunk": None}), content(case.resets, *wide.values))
    if key not in _oracle:
        _oracle[key] = with_gradients(wide.function("reference"), wide.values, 0)
    return _oracle[key]


def run(case: Case, backend: str) -> list[Tensor]:
    """Outputs and gradients of the case on a backend."""
    return with_gradients(case.function(backend), case.values, 0)


def check_step_sizes(given: Case, backend: str) -> None:
    """The selective scan is finite and correct at any step size.

    softplus(-200) is 0 in float32: then a decay of exactly 0 stays 0, and any other decay is exactly 1.
    """
    for dt in (-1e30, -200.0, -90.0, -1e-30, 1e-30, 90.0, 1e10):
        case = given._replace(tensors=given.tensors | {"dt": torch.full_like(given.tensors["dt"], dt)})
        got = run(case, backend)
        assert all(x.isfinite().all() for x in got)
        if dt == -200.0:
            assert torch.equal(got[1], torch.where(torch.isneginf(case.tensors["A"]), 0.0, case.tensors["h0"]))
        if abs(dt) < 1e3:
            assert worst(got[:2], exact(case)[:2]) < 1e-4


class Recording(TorchDispatchMode):
    """Within this context, record calls of our operators and all their outputs, with tensors saved for the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.outputs: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "ssm_kernels":
            self.calls.append((func, args))
            self.outputs += result
        return result
