"""Tests run with the native build of the C++. Exhaustive runs add the other builds of builds.py.

A test with the fixture `build` runs in every other build. A test with an argument `backend` runs at every other
instruction set, where the backend is "cpp". The mark `one_build` is for slow tests of what a build cannot change.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch
from kernels.builds import NATIVE, OTHER_COMPILERS, OTHER_INSTRUCTIONS, Build
from ssm_kernels.native.cpu import VARIABLE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    arguments = inspect.signature(metafunc.function).parameters
    if metafunc.definition.get_closest_marker("one_build"):
        return
    if "build" in arguments or "backend" in arguments:
        others = [*OTHER_INSTRUCTIONS, *(OTHER_COMPILERS if "build" in arguments else ())]
        marked = [pytest.param(build, marks=pytest.mark.exhaustive) for build in others]
        metafunc.parametrize("build", [NATIVE, *marked], indirect=True, ids=str)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop other builds of the backends that are not written in C++."""
    items[:] = [item for item in items if not _is_repeated(getattr(getattr(item, "callspec", None), "params", {}))]


def _is_repeated(parameters: dict[str, object]) -> bool:
    return parameters.get("build", NATIVE) != NATIVE and parameters.get("backend", "cpp") != "cpp"


@pytest.fixture(autouse=True)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Build:
    """The build of the C++ in this test."""
    chosen: Build = getattr(request, "param", NATIVE)
    for variable, value in (("CXX", chosen.compiler), (VARIABLE, chosen.instructions)):
        if value:
            monkeypatch.setenv(variable, value)
    return chosen


@pytest.fixture
def memory_of_nans() -> Iterator[None]:
    """torch.empty returns NaN."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
