"""The Triton kernels in Triton's interpreter on the CPU equal the oracle in outputs, states and all gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from kernels.cases import exhaustive, run
from kernels.interpreted import Call, interpreter
from ssm_kernels.testing.cases import Case, make
from ssm_kernels.testing.numerics import error, with_gradients

pytest.importorskip("triton", reason="the triton package is not installed (Linux only)")

GATED = {"head": 0, "key": 1, "constant": 2, "none": 3, "head, bonus": 4, "key, bonus": 5, "head, grouped": 24}
# The delta scan computes the first and the last variant in chunks, and the others step by step.
DELTA = {"none": 0, "key": 2, "general, none": 3, "general, head": 4, "general, key": 5, "head, grouped": 13}
SMALL = {"batch": 1, "length": 37, "width": 5, "state": 3, "resets": 0.1}


class Errors(NamedTuple):
    """Measurements in the interpreting process. Tensors stay in that process."""

    worst: float  # over outputs and gradients
    state: float
    finite: bool
    dtypes: set[torch.dtype]


def measure(case: Case, segments: bool = False) -> Errors:
    """Measure errors in the interpreting process, optionally with time split into segments. Fresh memory is NaN."""
    from ssm_kernels.native import triton_launch

    usual = triton_launch.PROGRAMS, triton_launch.MIN_STEPS
    if segments:
        triton_launch.PROGRAMS, triton_launch.MIN_STEPS = 64, 32
    torch.use_deterministic_algorithms(True)  # this turns on torch.utils.deterministic.fill_uninitialized_memory
    try:
        got = run(case, "triton")
    finally:
        triton_launch.PROGRAMS, triton_launch.MIN_STEPS = usual
        torch.use_deterministic_algorithms(False)
    exact = with_gradients(case.function("reference"), case.to(torch.float64).values, 0)
    errors = [error(a, b) for a, b in zip(got, exact, strict=True)]
    return Errors(max(errors), errors[1], all(bool(x.isfinite().all()) for x in got), {x.dtype for x in got})


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Call]:
    with interpreter() as call:
        yield call


CASES = [("gated_scan", variant) for variant in GATED.values()]
CASES += [("selective_scan", variant) for variant in (0, 1, 14)] + [("diagonal_scan", n) for n in range(8)]
CASES += [("delta_scan", variant) for variant in DELTA.values()]


SOME = {"gated_scan": (4, 24), "diagonal_scan": (5,), "delta_scan": (5, 13), "selective_scan": (0, 14)}
FEW = [case for case in CASES if case[1] in SOME[case[0]]]
rows = partial(pytest.mark.parametrize, ("operation", "variant"))


@rows([*FEW, *exhaustive(*(case for case in CASES if case not in FEW))])
def test_equals_the_reference(interpreted: Call, operation: str, variant: int) -> None:
    errors = interpreted(measure, make(operation, 1, variant=variant, decay="mixed", **SMALL))
    assert errors.worst < 1e-11


@rows([("gated_scan", 0), *exhaustive(("gated_scan", 1)), ("selective_scan", 9), ("delta_scan", 1)])
def test_without_a_state_and_resets(interpreted: Call, operation: str, variant: int) -> None:
    errors = interpreted(measure, make(operation, 2, variant=variant, **{**SMALL, "resets": 0.0}, start=False))
    assert errors.worst < 1e-11


@pytest.mark.parametrize(
    ("operation", "variant", "length"),
    [
        *exhaustive(("gated_scan", 4, 130), ("gated_scan", 5, 66), ("diagonal_scan", 0, 300)),
        ("selective_scan", 0, 200),
        ("diagonal_scan", 7, 300),
    ],
)
def test_a_sequence_cut_into_segments(interpreted: Call, operation: str, variant: int, length: int) -> None:
    """Programs compute segments in parallel. A carry joins them, forward and backward."""
    errors = interpreted(measure, make(operation, 3, variant=variant, **{**SMALL, "length": length}), segments=True)
    assert errors.worst < 1e-11


@pytest.mark.parametrize(
    ("operation", "variant", "width", "state", "length"),
    [
        *exhaustive(
            ("gated_scan", 24, 70, 67, 20),
            ("gated_scan", 5, 70, 35, 20),
            ("diagonal_scan", 0, 70, 1, 20),
            ("delta_scan", 13, 70, 67, 40),  # in chunks
            ("delta_scan", 13, 35, 17, 20),  # step by step
        ),
        ("selective_scan", 0, 70, 17, 20),
        ("delta_scan", 17, 35, 17, 20),
    ],
)
def test_several_tiles(interpreted: Call, operation: str, variant: int, width: int, state: int, length: int) -> None:
    case = make(operation, 4, variant=variant, **{**SMALL, "length": length, "width": width, "state": state})
    assert interpreted(measure, case).worst < 1e-11


@rows(
    [
        *(CASES[0], ("selective_scan", 0), CASES[-2]),
        *exhaustive(CASES[1], CASES[4], ("diagonal_scan", 2), CASES[-1]),
    ]
)
def test_float32_is_precise_at_strong_decay(interpreted: Call, operation: str, variant: int) -> None:
    case = make(operation, 5, variant=variant, decay="strong", **SMALL).to(torch.float32)
    assert interpreted(measure, case).worst < 2e-6


def test_small_steps_keep_their_precision(interpreted: Call) -> None:
    """softplus(-9) is 1e-4. log(1 + e^-9) in float32 would lose three digits."""
    case = make("selective_scan", 10, variant=6, **SMALL)
    case.tensors["dt"] -= 9.0
    assert interpreted(measure, case.to(torch.float32)).worst < 2e-6


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 5e-3), *exhaustive((torch.float16, 6e-4))])
@rows([("selective_scan", 0), ("delta_scan", 1), *exhaustive(CASES[0], CASES[1], ("diagonal_scan", 0))])
def test_half_precision_is_scanned_in_float32(
    interpreted: Call, operation: str, variant: int, dtype: torch.dtype, tolerance: float
) -> None:
    errors = interpreted(measure, make(operation, 6, variant=variant, **SMALL).to(dtype))
    assert errors.state < 1e-6
    assert errors.worst < tolerance
    assert torch.float32 in errors.dtypes


@rows(
    [
        *(CASES[0], ("selective_scan", 0), ("diagonal_scan", 0), CASES[-2]),
        *exhaustive(CASES[1], CASES[5], CASES[-1]),
    ]
)
def test_results_are_finite_at_any_decay(interpreted: Call, operation: str, variant: int) -> None:
    case = make(operation, 7, variant=variant, decay="wide", **SMALL).to(torch.float32)
    if "log_decay" in case.tensors:
        case.tensors["log_decay"] *= 1e4
    assert interpreted(measure, case).finite


def after_nan(case: Case) -> list[bool]:
    """Whether the outputs, the state, and the gradient of the decay are NaN after log decays of NaN in the middle."""
    middle = case.length // 2
    case.tensors["log_decay"][:, middle] = float("nan")
    y, state, *gradients = run(case, "triton")
    changed = gradients[list(case.tensors).index("log_decay")][:, middle]
    return [bool(x.isnan().all()) for x in (y[:, middle:], state, changed)]


@rows([("gated_scan", 0), *exhaustive(("gated_scan", 1), ("gated_scan", 4), ("delta_scan", 13))])
def test_a_decay_of_nan_is_not_a_reset(interpreted: Call, operation: str, variant: int) -> None:
    assert all(interpreted(after_nan, make(operation, 11, variant=variant, **{**SMALL, "resets": 0.0})))


@rows([("gated_scan", 0), ("selective_scan", 0), *exhaustive(("diagonal_scan", 0), ("delta_scan", 5))])
def test_slices_of_wider_tensors(interpreted: Call, operation: str, variant: int) -> None:
    """A mixer's projections are slices of one matrix product. The kernels read them without a copy."""
    case = make(operation, 9, variant=variant, **SMALL)
    wide = {n: torch.stack([x, x], -2)[..., 0, :] if n in case.sequences else x for n, x in case.tensors.items()}
    assert not all(x.is_contiguous() for x in wide.values())
    assert interpreted(measure, case._replace(tensors=wide)).worst < 1e-11


def test_error_without_a_gpu() -> None:
    from ssm_kernels import backends

    case: Any = make("gated_scan")
    if not torch.cuda.is_available():
        with pytest.raises(backends.BackendError, match="'triton' cannot run on cpu: it needs a CUDA device"):
            case.function("triton")(*case.values)


def sizes(case: Case) -> list[tuple[tuple[int, ...], int]]:
    """The shape of each output and gradient, and how many of its elements are not zero."""
    return [(tuple(x.shape), int(x.count_nonzero())) for x in run(case, "triton")]


@rows([("gated_scan", 4), *exhaustive(("selective_scan", 0), ("diagonal_scan", 5), ("delta_scan", 5))])
def test_an_empty_batch(interpreted: Call, operation: str, variant: int) -> None:
    case = make(operation, 10, variant=variant, **{**SMALL, "batch": 0}).to(torch.float32)
    assert interpreted(sizes, case) == [(tuple(x.shape), 0) for x in run(case, "reference")]


@pytest.mark.parametrize(
    ("version", "capability", "variable"),
    [
        ("3.8.1", (9, 0), "DISABLE_MMA_V3"),
        ("3.10.0", (9, 0), None),
        ("3.10.0", (10, 3), "DISABLE_MMA_V5"),
        ("3.6.0", (12, 0), None),
        ("3.6.0", (8, 6), None),
    ],
)
def test_matrix_instructions_that_triton_uses_wrongly_are_avoided(
    version: str,
    capability: tuple[int, int],
    variable: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import triton
    from ssm_kernels.native.triton_launch import avoid_unsafe_products

    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for own in ({}, {"DISABLE_MMA_V3": "0", "DISABLE_MMA_V5": "0"}):  # a user's setting stays
        caplog.clear()
        with mock.patch.dict(os.environ, own):
            before = dict(os.environ)
            avoid_unsafe_products.__wrapped__(torch.device("cuda"))
            new = {} if own or variable is None else {variable: "1"}
            assert dict(os.environ) == before | new
        assert len(caplog.records) == len(new)
        assert ("; Triton 3.9 or later" in caplog.text) == ("DISABLE_MMA_V3" in new)


@pytest.mark.parametrize(
    ("version", "array", "runs"), [("3.6.0", "2.4.6", False), ("3.6.0", "2.3.5", True), ("3.7.1", "2.4.6", True)]
)
def test_an_old_interpreter_names_the_numpy_that_it_needs(
    version: str, array: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton
    from ssm_kernels.native import triton_launch

    monkeypatch.setattr(triton_launch, "INTERPRETED", True)
    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(triton_launch.metadata, "version", lambda package: array)
    reason = "the interpreter of Triton 3.6.0 needs NumPy before 2.4; this is 2.4.6"
    assert triton_launch.unavailable(torch.device("cpu")) == (None if runs else reason)
