"""The C++ on a 64-bit ARM: NEON through the compilers' vectors, four floats wide, with multiply-adds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernels.arm import COMPILERS, Library, missing, on_arm
from kernels.cases import EVERY, OPERATIONS, exact, make, variants
from kernels.numerics import with_gradients, worst
from kernels.recording import Recording
from kernels.simd_functions import check_ends, check_precision, check_sums, write_functions
from ssm_kernels import selective_scan

exhaustive = pytest.mark.exhaustive
FIRST, *OTHERS = COMPILERS
QUICK = [("selective_scan", 0), ("causal_conv1d", 0)]  # to compile, which takes longest here
CASES = [(operation, variant) for operation in EVERY for variant in variants(operation)]
SLOW = [pytest.param(*case, marks=exhaustive) for case in CASES if case not in QUICK]


@pytest.fixture(params=[FIRST, *(pytest.param(name, marks=exhaustive) for name in OTHERS)], autouse=True)
def compiler(request: pytest.FixtureRequest) -> Iterator[str]:
    reason = missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    with on_arm(request.param):
        yield request.param


@pytest.mark.parametrize(("operation", "variant"), [*QUICK, *SLOW])
@pytest.mark.parametrize(("width", "length"), [pytest.param(6, 1, marks=exhaustive), (19, 45)])
def test_equals_the_reference(
    operation: str, variant: int, width: int, length: int, compiler: str, memory_of_nans: None
) -> None:
    """Outputs and gradients, in both precisions; all memory is written, what is saved too."""
    case = make(operation, 1, length=length, width=width, state=5, variant=variant, resets=0.1)
    single = case.to(torch.float32)
    with Recording() as recording:
        got, low = (with_gradients(x.function("cpp"), x.values, 0) for x in (case, single))
    assert worst(got, exact(case)) < 1e-12
    assert worst(low, exact(single)) < 5e-6
    assert not any(x.isnan().any() for x in recording.outputs)


@exhaustive
@pytest.mark.parametrize("operation", OPERATIONS)
def test_threads_change_no_bit(operation: str, compiler: str) -> None:
    case = make(operation, 2, length=70, batch=3, width=40, state=16, decay="mixed").to(torch.float32)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            results.append(with_gradients(case.function("cpp"), case.values, 0))
        finally:
            torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_denormals_are_flushed(compiler: str) -> None:
    """Decays of 1 and no drive: the state would stay as it is."""
    B, T, D, N = 1, 5, 8, 4
    silent, rates, projection = torch.zeros(B, T, D), torch.zeros(D, N), torch.ones(B, T, N)
    denormal = torch.full((B, D, N), 1e-40)
    _, state = selective_scan(silent, silent, rates, projection, projection, h0=denormal, backend="cpp")
    assert state.count_nonzero() == 0


def test_functions_are_precise(compiler: str, tmp_path: Path) -> None:
    functions = Library(compiler, write_functions(tmp_path))
    for dtype in (torch.float32, torch.float64):
        check_precision(functions, dtype)
        check_ends(functions, dtype)
        check_sums(functions, dtype, 37)
