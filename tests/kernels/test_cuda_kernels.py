"""The source of the CUDA kernels, compiled for the CPU, equals the oracle for all splits of the work."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.cases import cases, check_step_sizes, exact, exhaustive, run
from kernels.cuda_emulation import compiler_missing, turns
from ssm_kernels import causal_conv1d, selective_scan
from ssm_kernels.benchmarks.on_gpu.stand_ins import emulated
from ssm_kernels.native import cuda as native
from ssm_kernels.selective_scan import cuda as scan
from ssm_kernels.testing.cases import Case, make, variants
from ssm_kernels.testing.numerics import error, normal, same_bits, with_gradients, worst
from torch import Tensor

pytestmark = pytest.mark.skipif(compiler_missing() is not None, reason=str(compiler_missing()))

OPERATIONS = ("selective_scan", "causal_conv1d")
PROCESSORS = (1, 4, 132)  # a sequence is one block, a few segments, or one segment per tile
ALL = [(operation, variant) for operation in OPERATIONS for variant in variants(operation)]
# Each number of states or taps is another library to compile, so most tests use these.
STATES = (6, 16)
half_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.bfloat16, 4e-3), *exhaustive((torch.float16, 5e-4))],
    ids=["bfloat16", "float16"],
)


def emulate(case: Case, processors: int = 132) -> list[Tensor]:
    """Outputs and gradients of the kernels."""
    with emulated(processors):
        return run(case, "cuda")


def rounding(case: Case) -> float:
    """The error of the oracle in float32: large if terms of a sum cancel, as in the gradient of a single dt_bias."""
    return worst(run(case, "reference"), exact(case))


def in_float32(operation: str, seed: int = 0, length: int = 40, **sizes: Any) -> Case:
    return make(operation, seed, length, **{"state": STATES[0], **sizes}).to(torch.float32)


any_case = st.one_of(*(cases(operation, 130, 40, STATES) for operation in OPERATIONS)).map(
    lambda case: case.to(torch.float32)
)


@settings(max_examples=20)
@given(any_case, st.sampled_from(PROCESSORS))
def test_equals_the_reference(case: Case, processors: int) -> None:
    got = emulate(case, processors)
    assert all(x.isfinite().all() for x in got)
    found = worst(got, exact(case))
    assert found < 2e-5 or found < 4 * rounding(case)


@settings(max_examples=8)
@given(any_case, st.lists(st.integers(1, 129), max_size=3), st.sampled_from(PROCESSORS))
def test_results_do_not_depend_on_cuts_of_the_sequence(case: Case, cuts: list[int], processors: int) -> None:
    with emulated(processors):
        pieces = with_gradients(case.in_pieces("cuda", cuts), case.values, 0)
        assert worst(pieces, run(case, "cuda")) < 1e-4  # both are rounded; the largest difference so far was 5.2e-5


@pytest.mark.parametrize("processors", [*exhaustive(*PROCESSORS[::2]), PROCESSORS[1]])
@pytest.mark.parametrize("decay", [*exhaustive("usual"), "strong"])
@pytest.mark.parametrize(("operation", "variant"), ALL)
def test_float32_is_precise_even_at_strong_decay(operation: str, variant: int, decay: str, processors: int) -> None:
    case = in_float32(operation, 12, 300, width=16, decay=decay, variant=variant)
    errors = [error(a, b) for a, b in zip(emulate(case, processors), exact(case), strict=True)]
    assert median(errors) < 2e-6
    assert max(errors) < 1e-5


# All distributions of states over lanes and registers, padded states, and widths larger than a block.
@pytest.mark.parametrize("processors", [*exhaustive(1), 132])
@pytest.mark.parametrize(
    ("N", "width"),
    [
        *((1, 3), (13, 5), (64, 33)),
        *exhaustive((2, 130), (1100, 1), (8, 129), (16, 131), (32, 65), (40, 3), (128, 17), (200, 3), (700, 2)),
    ],
)
def test_any_number_of_states(N: int, width: int, processors: int) -> None:
    for variant in (0, 14):  # with all optional inputs, and with none
        case = in_float32("selective_scan", 3, 37, batch=1, width=width, state=N, variant=variant)
        assert worst(emulate(case, processors), exact(case)) < 2e-6


@pytest.mark.parametrize("K", [*exhaustive(2, 3, 4, 7), 1, 12])
def test_any_number_of_taps(K: int) -> None:
    for width in (5, 8):  # with loads of one channel, and of four
        case = in_float32("causal_conv1d", 4, 30, width=width, state=K, resets=0.1)
        for processors in PROCESSORS:
            assert worst(emulate(case, processors), exact(case)) < 2e-6


@half_precision
@pytest.mark.parametrize(("operation", "variant"), ALL)
def test_half_precision_is_computed_in_float32(
    operation: str, variant: int, dtype: torch.dtype, tolerance: float
) -> None:
    case = make(operation, 16, length=70, variant=variant, resets=0.05).to(dtype)
    got, expected = emulate(case), exact(case)
    y, state, *gradients = got
    assert (y.dtype, state.dtype, {x.dtype for x in gradients}) == (dtype, torch.float32, {dtype})
    assert error(state, expected[1]) < 2e-6
    assert worst(got, expected) < tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_zeros_stay_zeros(dtype: torch.dtype) -> None:
    with emulated():
        y, _ = causal_conv1d(torch.zeros(1, 4, 8, dtype=dtype), torch.ones(8, 2), backend="cuda")
    assert not y.any()


def test_dtypes_may_be_mixed() -> None:
    """As with autocast: u, B and C in bfloat16, the step sizes and the parameters in float32."""
    case = in_float32("selective_scan", 17, state=4)
    case = case._replace(tensors={n: x.bfloat16() if n in ("u", "B", "C") else x for n, x in case.tensors.items()})
    got, expected = emulate(case), exact(case)
    assert got[0].dtype == torch.bfloat16
    assert error(got[1], expected[1]) < 2e-6
    assert worst(got, expected) < 4e-3
    case = in_float32("causal_conv1d", 17, state=4)
    case = case._replace(tensors=case.tensors | {"x": case.tensors["x"].bfloat16()})
    assert worst(emulate(case), exact(case)) < 4e-3


@pytest.mark.parametrize("decay", ["one", "zero", "usual", "mixed"])
def test_results_are_finite_at_any_step_size(decay: str) -> None:
    for processors in (1, 132):
        with emulated(processors):
            check_step_sizes(in_float32("selective_scan", 3, 20, decay=decay), "cuda")


def test_a_negative_step_size_can_let_states_grow_but_a_decay_of_zero_stays_zero() -> None:
    case = in_float32("selective_scan", 5, 21, decay="mixed", variant=1)
    tensors = case.tensors | {"dt": -case.tensors["dt"] * 0.01, "A": case.tensors["A"].clamp(min=-3.0)}
    tensors["A"][0, 0], tensors["A"][1, 1] = -float("inf"), 0.0
    case = case._replace(tensors=tensors)
    for processors in (1, 132):
        assert worst(emulate(case, processors), exact(case)) < 1e-5


@pytest.mark.parametrize(("operation", "variant"), ALL)
def test_every_element_is_written_and_results_are_deterministic(
    operation: str, variant: int, memory_of_nans: None
) -> None:
    """Shared memory starts with NaN, too."""
    case = in_float32(operation, 6, 50, width=21, variant=variant, resets=0.1)
    first, second = emulate(case), emulate(case)
    assert all(x.isfinite().all() for x in first)
    assert same_bits(first, second)


@pytest.mark.parametrize("order", [*exhaustive(1, 75), 37])
@pytest.mark.parametrize("variant", [*exhaustive(0), 15])
def test_the_order_of_threads_does_not_matter(order: int, variant: int) -> None:
    """A kernel without a necessary barrier gives other bits when its threads run in another order."""
    case = in_float32("selective_scan", 8, 130, width=40, state=16, variant=variant, resets=0.05)
    softplus = "true" if variant % 2 == 0 else "false"
    for processors in (1, 2):  # whole sequences; segments of several tiles
        expected = emulate(case, processors)
        with turns(order, scan.SOURCE, "ELEMENT=float", "STATES=16", f"SOFTPLUS={softplus}"):
            assert same_bits(emulate(case, processors), expected)


def test_inputs_may_have_any_memory_layout() -> None:
    """Strided, broadcast, and contiguous without the alignment of vector loads."""
    u, dt, A, B, C, h0 = (x.float() for x in normal(9, (2, 20, 8), (2, 20, 8), (8, 6), *[(2, 20, 6)] * 2, (8, 6)))
    A, h0 = -A.abs(), h0.expand(2, 8, 6)
    shifted = torch.empty(h0.numel() + 1)[1:].view(2, 8, 6).copy_(h0)
    expected = selective_scan(u, dt, A, B, C, h0=h0, backend="reference")
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (u, dt, B, C)]
    with emulated():
        for state in (h0, shifted):
            got = selective_scan(strided[0], strided[1], A.t().contiguous().t(), *strided[2:], h0=state, backend="cuda")
            assert worst(got, expected) < 1e-6
        x = torch.empty(u.numel() + 1)[1:].view(2, 20, 8).copy_(u)
        before = h0.transpose(1, 2)[:, :5]
        got = causal_conv1d(x, A, state=before, backend="cuda")
    assert worst(got, causal_conv1d(u, A, state=before, backend="reference")) < 1e-6


def test_memory_of_vector_loads_is_aligned() -> None:
    """A CPU accepts unaligned loads, a GPU does not."""
    shifted = torch.arange(9.0)[1:]
    assert shifted.data_ptr() % 16
    packed = native.packed(shifted, torch.float32)
    assert packed.data_ptr() % 16 == 0
    assert torch.equal(packed, shifted)
    assert native.packed(packed, torch.float32).data_ptr() == packed.data_ptr()


def test_an_empty_batch_has_gradients_of_zero() -> None:
    for operation in OPERATIONS:
        case = in_float32(operation, length=5, batch=0)
        got = emulate(case)
        assert [x.shape for x in got] == [x.shape for x in exact(case)]
        assert all(x.count_nonzero() == 0 for x in got)


def test_error_of_unsupported_inputs() -> None:
    case = make("selective_scan", length=3)
    with pytest.raises(ValueError, match="selective_scan: backend 'cuda' computes in float32 and takes no float64"):
        emulate(case)
    with pytest.raises(ValueError, match="causal_conv1d: backend 'cuda' computes in float32 and takes no float64"):
        emulate(make("causal_conv1d"))
    with pytest.raises(ValueError, match="takes N up to 2048, got 2049"):
        emulate(in_float32("selective_scan", length=1, batch=1, width=1, state=2049))


def test_a_gpu_with_little_shared_memory_takes_few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "shared_memory", lambda device: 99 * 1024)  # sm_86 and sm_89
    found = {N: scan.unsuited(scan.Inputs(*[torch.zeros(1, N)] * len(scan.Inputs._fields))) for N in (64, 65, 256, 257)}
    assert found[64] is found[256] is None
    assert found[65] == "needs 166,912 bytes of shared memory per block for N = 65"
    assert found[257] is not None
