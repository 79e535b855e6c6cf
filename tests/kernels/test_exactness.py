"""Every operation in every backend: equal to the oracle at every decay and precision, however the sequence is cut."""

from __future__ import annotations

from statistics import median

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.cases import ALL, EACH, OPERATIONS, PAIRS, Case, cases, make
from kernels.numerics import error, with_gradients, worst
from ssm_kernels import backends
from torch import Tensor

# Triton's interpreter takes a second where a compiled kernel takes a millisecond.
EXAMPLES = {"torch": (100, 300), "cpp": (100, 300), "triton": (6, 70)}
# There are no complex numbers in half precision.
REAL = [case for case in ALL if not any(x.is_complex() for x in make(case[0], variant=case[2]).values)]
half_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 5e-4)], ids=["bfloat16", "float16"]
)


def exact(case: Case) -> list[Tensor]:
    """Outputs and gradients by the oracle on the same numbers, in float64."""
    return with_gradients(case.function("reference"), case.to(torch.float64).values, 0)


@pytest.mark.parametrize(("operation", "backend"), PAIRS)
def test_equals_the_reference(operation: str, backend: str) -> None:
    examples, longest = EXAMPLES[backend]

    @settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(cases(operation, longest))
    def check(case: Case) -> None:
        assert worst(with_gradients(case.function(backend), case.values, 0), exact(case)) < 1e-11

    check()


# What the torch backend works on at once; so small, every case takes many pieces.
PIECES = {
    "diagonal_scan": ("ROW", 1 << 20),
    "selective_scan": ("ROW", 1),
    "gated_scan": ("SPAN", 1),
    "delta_scan": ("SPAN", 1),
    "causal_conv1d": ("BLOCK", 40),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_pieces_of_a_large_call_fit_together(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, size = PIECES[operation]
    monkeypatch.setitem(getattr(backends.module(operation, "torch"), name), "cpu", size)

    @settings(deadline=None, max_examples=25)
    @given(cases(operation, 150))
    def check(case: Case) -> None:
        assert worst(with_gradients(case.function("torch"), case.values, 0), exact(case)) < 1e-11

    check()


@pytest.mark.parametrize(("operation", "backend"), PAIRS)
def test_cutting_it_anywhere_changes_nothing(operation: str, backend: str) -> None:
    examples, longest = EXAMPLES[backend]

    @settings(deadline=None, max_examples=min(examples, 40), suppress_health_check=[HealthCheck.too_slow])
    @given(cases(operation, longest), st.lists(st.integers(1, longest - 1), max_size=3))
    def check(case: Case, cuts: list[int]) -> None:
        whole = with_gradients(case.function(backend), case.values, 0)
        assert worst(with_gradients(case.in_pieces(backend, cuts), case.values, 0), whole) < 1e-11

    check()


@pytest.mark.parametrize(
    ("operation", "backend", "variant"),
    [case if case in EACH else pytest.param(*case, marks=pytest.mark.exhaustive) for case in ALL],
)
def test_gradients_are_those_of_finite_differences(operation: str, backend: str, variant: int) -> None:
    case = make(operation, 5, length=7, batch=1, width=3, state=2, variant=variant, resets=0.2)
    assert case.resets is not None
    assert case.resets.any()
    assert torch.autograd.gradcheck(case.function(backend), [x.requires_grad_() for x in case.values])


@pytest.mark.parametrize("decay", [pytest.param("usual", marks=pytest.mark.exhaustive), "strong"])
@pytest.mark.parametrize(("operation", "backend", "variant"), ALL)
def test_float32_loses_little_even_at_strong_decay(operation: str, backend: str, variant: int, decay: str) -> None:
    """In the middle of outputs and gradients, and the worst of them; sums of logs that cancel would lose 1e-3."""
    length = EXAMPLES[backend][1]
    case = make(operation, 12, length=length, width=16, state=8, decay=decay, variant=variant).to(torch.float32)
    got = with_gradients(case.function(backend), case.values, 0)
    assert {x.dtype.to_real() for x in got} == {torch.float32}
    errors = [error(a, b) for a, b in zip(got, exact(case), strict=True)]
    assert median(errors) < 2e-6
    assert max(errors) < 1e-5


@half_precision
@pytest.mark.parametrize(("operation", "backend", "variant"), REAL)
def test_half_precision_is_scanned_in_float32(
    operation: str, backend: str, variant: int, dtype: torch.dtype, tolerance: float
) -> None:
    case = make(operation, 16, length=70, variant=variant).to(dtype)
    got, expected = with_gradients(case.function(backend), case.values, 0), exact(case)
    y, state, *gradients = got
    assert y.dtype == (torch.float32 if operation == "diagonal_scan" else dtype)
    assert (state.dtype, {x.dtype for x in gradients}) == (torch.float32, {dtype})
    assert error(state, expected[1]) < 2e-6
    assert worst(got, expected) < tolerance


@pytest.mark.parametrize(
    "decay",
    [*(pytest.param(decay, marks=pytest.mark.exhaustive) for decay in ("one", "zero", "tiny")), "wide", "mixed"],
)
@pytest.mark.parametrize(("operation", "backend", "variant"), ALL)
def test_no_decay_makes_anything_infinite(operation: str, backend: str, variant: int, decay: str) -> None:
    case = make(operation, 21, length=65, decay=decay, variant=variant, resets=0.1).to(torch.float32)
    got = with_gradients(case.function(backend), case.values, 0)
    assert all(x.isfinite().all() for x in got)
    assert worst(got, exact(case)) < 1e-4


@pytest.mark.parametrize("dt", [-1e30, -200.0, -90.0, -1e-30, 1e-30, 90.0, 1e10])
@pytest.mark.parametrize("decay", ["one", "zero", "usual", "mixed"])
@pytest.mark.parametrize("backend", [backend for operation, backend in PAIRS if operation == "selective_scan"])
def test_no_step_size_makes_anything_infinite(backend: str, decay: str, dt: float) -> None:
    """softplus(-200) is 0 in float32: a decay of exactly 0 stays one, and any other is exactly 1."""
    case = make("selective_scan", 3, length=20, decay=decay).to(torch.float32)
    case = case._replace(tensors=case.tensors | {"dt": torch.full_like(case.tensors["dt"], dt)})
    got = with_gradients(case.function(backend), case.values, 0)
    assert all(x.isfinite().all() for x in got)
    if dt == -200.0:
        A, h0 = case.tensors["A"], case.tensors["h0"]
        expected = torch.where(torch.isneginf(A), 0.0, h0)
        assert torch.equal(got[1], expected)
    if abs(dt) < 1e3:
        assert worst(got[:2], exact(case)[:2]) < 1e-4


@pytest.mark.parametrize(("operation", "backend", "variant"), EACH)
def test_a_reset_starts_anew(operation: str, backend: str, variant: int) -> None:
    """What follows a reset is what a run of its own from the zero state says, and the gradients stop there."""
    at = 9
    case = make(operation, 2, length=25, variant=variant)
    resets = torch.zeros(case.values[0].shape[0], 25, dtype=torch.bool)
    resets[:, at] = True
    leaves = [x.requires_grad_() for x in case.values]
    y, state = case._replace(resets=resets).function(backend)(*leaves)
    named = dict(zip(case.tensors, leaves, strict=True))
    alone = case._replace(tensors={n: x[:, at:] if n in case.sequences else x for n, x in case.tensors.items()})
    alone = alone._replace(tensors={n: x.detach() for n, x in alone.tensors.items() if n not in ("h0", "state")})
    assert worst([y[:, at:], state], alone.function(backend)(*alone.values)) < 1e-13
    through = [x for n, x in named.items() if n in case.sequences or n in ("h0", "state")]
    gradients = torch.autograd.grad(y[:, at:].sum() + state.sum(), through)
    assert all(x[:, :at].count_nonzero() == 0 for x in gradients if x.shape[1:2] == (25,))
    assert all(x.count_nonzero() == 0 for x in gradients if x.shape[1:2] != (25,))
