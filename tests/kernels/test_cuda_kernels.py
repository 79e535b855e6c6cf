"""The CUDA kernels' own source on the CPU: equal to the oracle, however threads, blocks and segments share the work."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.cases import DECAYS, Case, exact, make, variants
from kernels.cuda_emulation import compiler_missing, emulated, turns
from kernels.numerics import error, normal, with_gradients, worst
from ssm_kernels import causal_conv1d, selective_scan
from ssm_kernels.native import cuda as native
from ssm_kernels.selective_scan import cuda as scan
from torch import Tensor

pytestmark = pytest.mark.skipif(compiler_missing() is not None, reason=str(compiler_missing()))

OPERATIONS = ("selective_scan", "causal_conv1d")
exhaustive = pytest.mark.exhaustive
# A whole sequence by one block, in a few segments, and in as many as it has tiles.
PROCESSORS = (1, 4, 132)
ALL = [(operation, variant) for operation in OPERATIONS for variant in variants(operation)]
half_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.bfloat16, 4e-3), pytest.param(torch.float16, 5e-4, marks=exhaustive)],
    ids=["bfloat16", "float16"],
)


def emulate(case: Case, processors: int = 132) -> list[Tensor]:
    """Outputs and gradients by the kernels."""
    with emulated(processors):
        return with_gradients(case.function("cuda"), case.values, 0)


def in_float32(**wanted: Any) -> Case:
    return make(**wanted).to(torch.float32)


def cases(states: tuple[int, ...]) -> st.SearchStrategy[Case]:
    """Any case; a width or a number of states of its own is a library of its own to compile."""
    return st.builds(
        in_float32,
        operation=st.sampled_from(OPERATIONS),
        seed=st.integers(0, 2**31),
        length=st.one_of(st.integers(1, 20), st.integers(1, 130)),
        batch=st.integers(1, 3),
        width=st.one_of(st.integers(1, 19), st.integers(1, 40)),
        state=st.sampled_from(states),
        decay=st.sampled_from(DECAYS),
        variant=st.integers(0, 31),
        resets=st.sampled_from((0.0, 0.05, 0.5)),
        start=st.booleans(),
    )


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(cases((1, 4, 6, 16)), st.sampled_from(PROCESSORS))
def test_equals_the_reference(case: Case, processors: int) -> None:
    got = emulate(case, processors)
    assert all(x.isfinite().all() for x in got)
    assert worst(got, exact(case)) < 2e-5


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(cases((4, 16)), st.lists(st.integers(1, 129), max_size=3), st.sampled_from(PROCESSORS))
def test_cutting_it_anywhere_changes_nothing(case: Case, cuts: list[int], processors: int) -> None:
    with emulated(processors):
        whole = with_gradients(case.function("cuda"), case.values, 0)
        pieces = with_gradients(case.in_pieces("cuda", cuts), case.values, 0)
        assert worst(pieces, whole) < 1e-4  # both are rounded: 5.2e-5 was seen


@pytest.mark.parametrize("processors", [*(pytest.param(n, marks=exhaustive) for n in PROCESSORS[::2]), PROCESSORS[1]])
@pytest.mark.parametrize("decay", [pytest.param("usual", marks=exhaustive), "strong"])
@pytest.mark.parametrize(("operation", "variant"), ALL)
def test_float32_loses_little_even_at_strong_decay(operation: str, variant: int, decay: str, processors: int) -> None:
    case = in_float32(operation=operation, seed=12, length=300, width=16, state=8, decay=decay, variant=variant)
    errors = [error(a, b) for a, b in zip(emulate(case, processors), exact(case), strict=True)]
    assert median(errors) < 2e-6
    assert max(errors) < 1e-5


# Every way that states are spread over lanes and registers, with states that only fill up, and widths beyond a block's.
@pytest.mark.parametrize("processors", [pytest.param(1, marks=exhaustive), 132])
@pytest.mark.parametrize(
    ("N", "width"),
    [
        *((13, 5), (64, 33)),
        *(
            pytest.param(*case, marks=exhaustive)
            for case in ((2, 130), (1100, 1), (8, 129), (16, 131), (32, 65), (40, 3), (128, 17), (200, 3), (700, 2))
        ),
    ],
)
def test_any_number_of_states(N: int, width: int, processors: int) -> None:
    for variant in (0, 14):  # with all that is optional, and without
        case = in_float32(operation="selective_scan", seed=3, length=37, batch=1, width=width, state=N, variant=variant)
        assert worst(emulate(case, processors), exact(case)) < 2e-6


@pytest.mark.parametrize("K", [*(pytest.param(K, marks=exhaustive) for K in (2, 3, 7)), 1, 12])
def test_any_number_of_taps(K: int) -> None:
    for width in (5, 8):  # alone, and four at once
        case = in_float32(operation="causal_conv1d", seed=4, length=30, width=width, state=K, resets=0.1)
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


def test_dtypes_may_be_mixed() -> None:
    """As autocast leaves them: u, B and C in bfloat16, the step sizes and the parameters in float32."""
    case = in_float32(operation="selective_scan", seed=17, length=40)
    case = case._replace(tensors={n: x.bfloat16() if n in ("u", "B", "C") else x for n, x in case.tensors.items()})
    got, expected = emulate(case), exact(case)
    assert got[0].dtype == torch.bfloat16
    assert error(got[1], expected[1]) < 2e-6
    assert worst(got, expected) < 4e-3
    case = in_float32(operation="causal_conv1d", seed=17)
    case = case._replace(tensors=case.tensors | {"x": case.tensors["x"].bfloat16()})
    assert worst(emulate(case), exact(case)) < 4e-3


@pytest.mark.parametrize("decay", ["one", "zero", "usual", "mixed"])
def test_no_step_size_makes_anything_infinite(decay: str) -> None:
    given = in_float32(operation="selective_scan", seed=3, length=20, decay=decay)
    for dt in (-1e30, -200.0, -90.0, -1e-30, 1e-30, 90.0, 1e10):
        case = given._replace(tensors=given.tensors | {"dt": torch.full_like(given.tensors["dt"], dt)})
        for processors in (1, 132):
            got = emulate(case, processors)
            assert all(x.isfinite().all() for x in got)
            if dt == -200.0:
                assert torch.equal(got[1], torch.where(torch.isneginf(case.tensors["A"]), 0.0, case.tensors["h0"]))
            if abs(dt) < 1e3:
                assert worst(got[:2], exact(case)[:2]) < 1e-4


def test_a_negative_step_size_may_grow_but_not_revive_a_decay_of_zero() -> None:
    case = in_float32(operation="selective_scan", seed=5, length=21, decay="mixed", variant=1)
    tensors = case.tensors | {"dt": -case.tensors["dt"] * 0.01, "A": case.tensors["A"].clamp(min=-3.0)}
    tensors["A"][0, 0], tensors["A"][1, 1] = -float("inf"), 0.0
    case = case._replace(tensors=tensors)
    for processors in (1, 132):
        assert worst(emulate(case, processors), exact(case)) < 1e-5


@pytest.mark.parametrize(("operation", "variant"), ALL)
def test_every_element_is_written_and_the_same_bits_come_twice(operation: str, variant: int) -> None:
    """torch.empty is full of NaN here, and shared memory always is."""
    case = in_float32(operation=operation, seed=6, length=50, width=21, state=6, variant=variant, resets=0.1)
    torch.use_deterministic_algorithms(True)
    try:
        one, two = emulate(case), emulate(case)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(x.isfinite().all() for x in one)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("order", [*(pytest.param(order, marks=exhaustive) for order in (1, 75)), 37])
@pytest.mark.parametrize("variant", [pytest.param(0, marks=exhaustive), 15])
def test_the_order_of_threads_does_not_matter(order: int, variant: int) -> None:
    """A kernel that lacks a barrier gives other bits when its threads take turns in another order."""
    case = in_float32(operation="selective_scan", seed=8, length=130, width=40, state=16, variant=variant, resets=0.05)
    softplus = "true" if variant % 2 == 0 else "false"
    for processors in (1, 2):  # whole sequences; segments of several tiles
        expected = emulate(case, processors)
        with turns(order, scan.SOURCE, "ELEMENT=float", "STATES=16", f"SOFTPLUS={softplus}"):
            got = emulate(case, processors)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_any_layout_of_memory_will_do() -> None:
    """Strided, broadcast, and contiguous but not aligned to what a vector load needs."""
    u, dt, A, B, C, h0 = (x.float() for x in normal(9, (2, 20, 8), (2, 20, 8), (8, 4), *[(2, 20, 4)] * 2, (8, 4)))
    A, h0 = -A.abs(), h0.expand(2, 8, 4)
    shifted = torch.empty(h0.numel() + 1)[1:].view(2, 8, 4).copy_(h0)
    expected = selective_scan(u, dt, A, B, C, h0=h0, backend="reference")
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (u, dt, B, C)]
    with emulated():
        for state in (h0, shifted):
            got = selective_scan(strided[0], strided[1], A.t().contiguous().t(), *strided[2:], h0=state, backend="cuda")
            assert worst(got, expected) < 1e-6
        x = torch.empty(u.numel() + 1)[1:].view(2, 20, 8).copy_(u)
        before = h0.transpose(1, 2)[:, :3]
        got = causal_conv1d(x, A, state=before, backend="cuda")
    assert worst(got, causal_conv1d(u, A, state=before, backend="reference")) < 1e-6


def test_what_vector_loads_read_is_aligned() -> None:
    """A processor does not mind, a GPU stops."""
    shifted = torch.arange(9.0)[1:]
    assert shifted.data_ptr() % 16
    packed = native.packed(shifted, torch.float32)
    assert packed.data_ptr() % 16 == 0
    assert torch.equal(packed, shifted)
    assert native.packed(packed, torch.float32).data_ptr() == packed.data_ptr()


def test_an_empty_batch_has_gradients_of_zero() -> None:
    for operation in OPERATIONS:
        case = in_float32(operation=operation, length=5, batch=0)
        got = emulate(case)
        assert [x.shape for x in got] == [x.shape for x in exact(case)]
        assert all(x.count_nonzero() == 0 for x in got)


def test_what_it_does_not_take_is_said() -> None:
    case = make("selective_scan", length=3)
    with pytest.raises(ValueError, match="selective_scan: backend 'cuda' computes in float32 and takes no float64"):
        emulate(case)
    with pytest.raises(ValueError, match="causal_conv1d: backend 'cuda' computes in float32 and takes no float64"):
        emulate(make("causal_conv1d"))
    with pytest.raises(ValueError, match="takes N from 1 to 2048, got 2049"):
        emulate(in_float32(operation="selective_scan", length=1, batch=1, width=1, state=2049))
