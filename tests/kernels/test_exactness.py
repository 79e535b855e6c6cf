"""Every operation on every backend and instruction set equals the oracle, for all kinds of inputs."""

from __future__ import annotations

import math
from collections import defaultdict
from importlib import import_module
from itertools import product
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.builds import NATIVE, Build
from kernels.cases import ALL, CPP, EACH, PAIRS, ROW, Recording, cases, check_step_sizes, exact, exhaustive, run
from ssm_kernels import delta_scan, gated_rms_norm
from ssm_kernels.testing.cases import EVERY, NORM, OPERATIONS, Case, make, variants
from ssm_kernels.testing.numerics import error, normal, with_gradients, worst

pytestmark = pytest.mark.filterwarnings("error:Casting complex values")  # an imaginary part would be dropped
# Hypothesis examples and longest sequence. Triton's interpreter is 1000 times slower than other backends.
EXAMPLES = defaultdict(lambda: (25, 150), triton=(6, 70))
# There are no complex numbers in half precision.
REAL = [case for case in ALL if not any(x.is_complex() for x in make(case[0], variant=case[2]).values)]
every = pytest.mark.parametrize(ROW, ALL)
# B, T, width, state: multiples of a vector, tile or chunk, and others. The kernels split narrow ones in time.
SIZES = [
    *((1, 1, 2, 1), (2, 45, 3, 5), (2, 32, 16, 16), (2, 33, 67, 17), (2, 16, 7, 64), (1, 100, 64, 8)),
    *((9, 31, 48, 20), (1, 64, 130, 16), (8, 16, 256, 3), (3, 17, 50, 27), (2, 131, 16, 7), (1, 300, 2, 4)),
]


@pytest.mark.parametrize(("operation", "backend"), PAIRS)
def test_equals_the_reference(operation: str, backend: str) -> None:
    examples, longest = EXAMPLES[backend]

    @settings(max_examples=examples)
    @given(cases(operation, longest))
    def check(case: Case) -> None:
        # The norm of one channel is almost its sign: the gradient of x is a difference with cancellation.
        alone = operation == NORM and case.values[0].shape[-1] == case.options["groups"]
        assert worst(run(case, backend), exact(case)) < (1e-8 if alone else 1e-11)

    check()


@pytest.mark.parametrize(ROW, CPP)
def test_any_size_in_every_build(
    operation: str, backend: str, variant: int, memory_of_nans: None, build: Build
) -> None:
    """In both precisions, with and without resets and state. The kernels write all memory, including saved tensors."""
    assert torch.empty(3).isnan().all()
    half = variants(operation).index(variant) % 2  # the native build tests half of the sizes per variant
    for number, (batch, length, width, state) in enumerate(SIZES):
        if build == NATIVE and number % 2 != half:
            continue
        plain = number % 3 == 1
        sizes = {"batch": batch, "length": length, "width": width, "state": state}
        case = make(operation, number, **sizes, variant=variant, resets=0.0 if plain else 0.1, start=not plain)
        single = case.to(torch.float32)
        case = single.to(torch.float64)  # the same numbers, so the oracle runs once
        with Recording() as recording:
            assert worst(run(case, backend), exact(case)) < 1e-12, sizes
            got = run(single, backend)
        assert {x.dtype.to_real() for x in got} == {torch.float32}
        # The delta rule's gradient of a single token is a difference with cancellation.
        assert worst(got, exact(case)) < (5e-6 if operation == "delta_scan" and length == 1 else 2e-6), sizes
        assert len(recording.calls) == 4
        assert not any(x.isnan().any() for x in recording.outputs)


@pytest.mark.parametrize(ROW, [case for case in CPP if case[0] in ("gated_scan", "delta_scan")])
def test_borders_of_blocks_and_chunks(operation: str, backend: str, variant: int) -> None:
    """Without resets (which hide the effect of a whole chunk on the state before it), with some, and at every step."""
    lengths = (7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
    for length, resets in (*product(lengths, (0.0, 0.1)), (40, 1.0)):
        case = make(operation, 7, length=length, width=3, state=5, variant=variant, resets=resets)
        assert worst(run(case, backend), exact(case)) < 1e-12


# The size of one piece of work in the torch backend. With these sizes, every case needs many pieces.
PIECES = {
    "diagonal_scan": ("diagonal_scan.pytorch", "ROW", 1 << 20),
    "selective_scan": ("selective_scan.pytorch", "ROW", 1),
    "gated_scan": ("spans", "SPAN", 1),
    "delta_scan": ("spans", "SPAN", 1),
    "causal_conv1d": ("causal_conv1d.pytorch", "BLOCK", 40),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_large_calls_of_torch_are_split_into_pieces(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, size = PIECES[operation]
    monkeypatch.setitem(getattr(import_module(f"ssm_kernels.{module}"), name), "cpu", size)

    @settings(max_examples=15)
    @given(cases(operation, 100))
    def check(case: Case) -> None:
        assert worst(run(case, "torch"), exact(case)) < 1e-11

    check()


@pytest.mark.parametrize(("operation", "backend"), [pair for pair in PAIRS if pair[0] != NORM])
def test_results_do_not_depend_on_cuts_of_the_sequence(operation: str, backend: str) -> None:
    examples, longest = EXAMPLES[backend]

    @settings(max_examples=min(examples, 30))
    @given(cases(operation, longest), st.lists(st.integers(1, longest - 1), max_size=3))
    def check(case: Case, cuts: list[int]) -> None:
        pieces = with_gradients(case.in_pieces(backend, cuts), case.values, 0)
        assert worst(pieces, run(case, backend)) < 1e-11

    check()


@pytest.mark.parametrize(
    ("operation", "variant"),
    [
        *((operation, variants(operation)[0]) for operation in EVERY),
        *exhaustive(*((operation, variant) for operation in EVERY for variant in variants(operation)[1:])),
    ],
)
def test_gradients_of_the_oracle_equal_finite_differences(operation: str, variant: int) -> None:
    """The other backends are compared with the oracle."""
    case = make(operation, 5, length=7, batch=1, width=3, state=2, variant=variant, resets=0.2)
    assert operation == NORM or (case.resets is not None and case.resets.any())
    assert torch.autograd.gradcheck(case.function("reference"), [x.requires_grad_() for x in case.values])


@pytest.mark.parametrize("decay", [*exhaustive("usual"), "strong"])
@every
def test_float32_is_precise_even_at_strong_decay(operation: str, backend: str, variant: int, decay: str) -> None:
    """The median and the largest error of outputs and gradients. Cancelling sums of logs would have errors of 1e-3."""
    case = make(operation, 12, length=EXAMPLES[backend][1], width=16, state=8, decay=decay, variant=variant)
    case = case.to(torch.float32)
    errors = [error(a, b) for a, b in zip(run(case, backend), exact(case), strict=True)]
    assert median(errors) < 2e-6
    assert max(errors) < 1e-5


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 5e-4)], ids=["bfloat16", "float16"]
)
@pytest.mark.parametrize(ROW, REAL)
def test_half_precision_is_scanned_in_float32(
    operation: str, backend: str, variant: int, dtype: torch.dtype, tolerance: float
) -> None:
    case = make(operation, 16, length=70, variant=variant).to(dtype)
    got, expected = run(case, backend), exact(case)
    y, state, *gradients = got
    assert y.dtype == (torch.float32 if operation == "diagonal_scan" else dtype)
    assert (state.dtype, {x.dtype for x in gradients}) == (torch.float32, {dtype})
    assert error(state, expected[1]) < (tolerance if operation == NORM else 2e-6)
    assert worst(got, expected) < tolerance


@pytest.mark.parametrize("decay", [*exhaustive("one", "zero", "tiny"), "wide", "mixed"])
@every
def test_results_are_finite_at_any_decay(operation: str, backend: str, variant: int, decay: str) -> None:
    case = make(operation, 21, length=65, decay=decay, variant=variant, resets=0.1).to(torch.float32)
    got = run(case, backend)
    assert all(x.isfinite().all() for x in got)
    assert worst(got, exact(case)) < 1e-4


@pytest.mark.parametrize(ROW, [case for case in CPP if "log_decay" in make(case[0], variant=case[2]).tensors])
def test_extreme_decays(operation: str, backend: str, variant: int, build: Build) -> None:
    """Decays that round to exactly 0 or exactly 1, at half of the steps or at all steps, in every build."""
    case = make(operation, 7, length=45, width=3, state=5, variant=variant, resets=0.1).to(torch.float32)
    usual = case.tensors["log_decay"]
    for value in (-math.inf, -1e38, -1e4, -1e-45, 0.0):
        for chosen in (torch.ones_like(usual, dtype=torch.bool), usual > usual.median()):
            extreme = case._replace(tensors=case.tensors | {"log_decay": torch.where(chosen, value, usual)})
            assert worst(run(extreme, backend), exact(extreme)) < 3e-6


@pytest.mark.parametrize("backend", [backend for operation, backend in PAIRS if operation == "selective_scan"])
def test_results_are_finite_at_any_step_size(backend: str) -> None:
    for decay in ("one", "zero", "usual", "mixed"):
        check_step_sizes(make("selective_scan", 3, length=20, decay=decay).to(torch.float32), backend)


@pytest.mark.parametrize("backend", [backend for operation, backend in PAIRS if operation == NORM])
def test_results_are_finite_at_any_gate(backend: str) -> None:
    gate = torch.tensor([-1e30, -200.0, -90.0, 0.0, 90.0, 1e4, 1e-40, -1e-40])
    inputs = [torch.ones(8), torch.ones(8), gate]
    got = with_gradients(lambda x, weight, gate: (gated_rms_norm(x, weight, gate, backend=backend),), inputs, 0)
    assert all(x.isfinite().all() for x in got)


@pytest.mark.parametrize("backend", [backend for operation, backend in PAIRS if operation == "selective_scan"])
def test_a_decay_of_zero_has_no_gradient_and_no_memory(backend: str) -> None:
    """A = -inf forgets all earlier steps, even where the step size is 0."""
    case = make("selective_scan", 4, length=20, variant=1 + 2 + 4 + 8)
    A, dt = torch.full_like(case.tensors["A"], -torch.inf), case.tensors["dt"].clone()
    dt[:, -1] = 0.0
    case = case._replace(tensors=case.tensors | {"A": A, "dt": dt})
    y, state, *gradients = run(case, backend)
    assert state.count_nonzero() == y[:, -1].count_nonzero() == 0
    named = dict(zip(case.tensors, gradients, strict=True))
    assert named["A"].count_nonzero() == named["h0"].count_nonzero() == 0
    assert all(x.isfinite().all() for x in gradients)


DELTA = [backend for operation, backend in PAIRS if operation == "delta_scan"]


@pytest.mark.parametrize("log_decay", [-math.inf, -1e30, -1e4])
@pytest.mark.parametrize("keys", [(), (4,)], ids=["head", "key"])
@pytest.mark.parametrize("backend", DELTA)
def test_a_delta_rule_with_a_decay_of_0_forgets(backend: str, keys: tuple[int, ...], log_decay: float) -> None:
    """Every step starts from a state of 0: y = q . beta k v. The decay and h0 have gradients of 0."""
    B, T, H, K, V = 2, 40, 3, 4, 5
    q, k, v, h0, beta = normal(5, *[(B, T, H, K)] * 2, (B, T, H, V), (B, H, K, V), (B, T, H))
    q, k, v = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k, v))
    decay = torch.full((B, T, H, *keys), log_decay, dtype=torch.float64)

    def scan(*x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return delta_scan(*x[:3], beta=x[3], log_decay=x[4], h0=x[5], backend=backend)

    y, state, *gradients = with_gradients(scan, [q, k, v, beta, decay, h0], 0)
    written = beta.unsqueeze(-1) * v
    last = k[:, -1].unsqueeze(-1) * written[:, -1].unsqueeze(-2)
    assert worst([y, state], [(q * k).sum(-1, keepdim=True) * written, last]) < 1e-14
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(gradient.count_nonzero() == 0 for gradient in gradients[-2:])


@pytest.mark.parametrize(ROW, [case for case in EACH if case[0] != NORM])
def test_a_reset_starts_from_a_zero_state(operation: str, backend: str, variant: int) -> None:
    """Outputs after a reset equal a separate call without a state. Gradients do not pass the reset."""
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
