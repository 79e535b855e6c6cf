"""The C++ is tested in every build that this machine can make of it (see builds.py).

All tests run in the native build. Where "exhaustive" tests are asked for, a test that names the fixture `build` runs in
each other one too, and a test that takes a `backend` at each other instruction set with the backend "cpp".
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
    if "build" in arguments or "backend" in arguments:
        others = [*OTHER_INSTRUCTIONS, *(OTHER_COMPILERS if "build" in arguments else ())]
        marked = [pytest.param(build, marks=pytest.mark.exhaustive) for build in others]
        metafunc.parametrize("build", [NATIVE, *marked], indirect=True, ids=str)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is not written in C++ is the same in every build."""
    items[:] = [item for item in items if not _has_no_build(getattr(getattr(item, "callspec", None), "params", {}))]


def _has_no_build(parameters: dict[str, object]) -> bool:
    return parameters.get("build", NATIVE) != NATIVE and parameters.get("backend", "cpp") != "cpp"


@pytest.fixture(autouse=True)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Build:
    """How the C++ is built in this test."""
    chosen: Build = getattr(request, "param", NATIVE)
    for variable, value in (("CXX", chosen.compiler), (VARIABLE, chosen.instructions)):
        if value:
            monkeypatch.setenv(variable, value)
    return chosen


@pytest.fixture
def memory_of_nans() -> Iterator[None]:
    """torch.empty gives NaN instead of what was there."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
