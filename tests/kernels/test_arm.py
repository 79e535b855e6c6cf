"""The C++ on an emulated 64-bit ARM, where vectors have four floats (NEON)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernels.arm import COMPILERS, Library, missing, on_arm
from kernels.cases import Recording, exact, exhaustive, run
from kernels.simd_functions import check_extremes, check_precision, check_sums, write_functions
from ssm_kernels import selective_scan
from ssm_kernels.testing.cases import EVERY, OPERATIONS, make, variants
from ssm_kernels.testing.numerics import same_bits, threads, worst

FIRST, *OTHERS = COMPILERS
QUICK = [("selective_scan", 0), ("causal_conv1d", 0)]  # the compilation takes longest here
CASES = [(operation, variant) for operation in EVERY for variant in variants(operation)]


@pytest.fixture(params=[FIRST, *exhaustive(*OTHERS)], autouse=True)
def compiler(request: pytest.FixtureRequest) -> Iterator[str]:
    reason = missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    with on_arm(request.param):
        yield request.param


@pytest.mark.parametrize(
    ("operation", "variant"), [*QUICK, *exhaustive(*(case for case in CASES if case not in QUICK))]
)
@pytest.mark.parametrize(
    ("compiler", "width", "length"),
    [(FIRST, 19, 45), *exhaustive((FIRST, 6, 1), *((other, 19, 45) for other in OTHERS))],
    indirect=["compiler"],
)
def test_equals_the_reference(
    operation: str, variant: int, width: int, length: int, compiler: str, memory_of_nans: None
) -> None:
    """Outputs and gradients in both precisions. The kernels also write all memory, including saved tensors."""
    case = make(operation, 1, length=length, width=width, state=5, variant=variant, resets=0.1)
    single = case.to(torch.float32)
    with Recording() as recording:
        got, low = (run(x, "cpp") for x in (case, single))
    assert worst(got, exact(case)) < 1e-12
    assert worst(low, exact(single)) < 5e-6
    assert not any(x.isnan().any() for x in recording.outputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_do_not_depend_on_the_number_of_threads(operation: str, compiler: str) -> None:
    case = make(operation, 2, length=70, batch=3, width=40, state=16, decay="mixed").to(torch.float32)
    expected = run(case, "cpp")
    with threads(2):
        assert same_bits(run(case, "cpp"), expected)


def test_denormals_are_flushed(compiler: str) -> None:
    """With decays of 1 and zero inputs, a denormal state would stay the same."""
    B, T, D, N = 1, 5, 8, 4
    silent, rates, projection = torch.zeros(B, T, D), torch.zeros(D, N), torch.ones(B, T, N)
    denormal = torch.full((B, D, N), 1e-40)
    _, state = selective_scan(silent, silent, rates, projection, projection, h0=denormal, backend="cpp")
    assert state.count_nonzero() == 0


def test_functions_are_precise(compiler: str, tmp_path: Path) -> None:
    functions = Library(compiler, write_functions(tmp_path))
    for dtype in (torch.float32, torch.float64):
        check_precision(functions, dtype)
        check_extremes(functions, dtype)
        check_sums(functions, dtype, 37)
