"""The selective scan in C++: every build, threads, strides, saved states, and denormals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from kernels.builds import Build
from kernels.numerics import error, normal, with_gradients, worst
from ssm_kernels import selective_scan
from torch import Tensor

# (B, T, D, N): vectors and their tails in channels, tiles of states and what is left of them, chunks of 16 steps and
# parts of one, several groups of channels, and one of everything.
SIZES = [(2, 37, 21, 5), (1, 64, 130, 16), (8, 16, 256, 3), (3, 17, 50, 27), (1, 1, 1, 1)]


@pytest.fixture(autouse=True)
def nan_in_new_memory() -> Iterator[None]:
    """What a kernel forgets to write is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def tensors(B: int, T: int, D: int, N: int, decay: float = 1.0) -> list[Tensor]:
    """u, dt, A, B, C, D, dt_bias, z and h0 in float64; A in (-decay, 0]."""
    sequence, projection = (B, T, D), (B, T, N)
    shapes = (sequence, sequence, (D, N), projection, projection, (D,), (D,), sequence, (B, D, N))
    u, dt, A, *others = normal(0, *shapes)
    A = -decay * A.abs() / A.abs().max()
    A[0, 0] = 0.0
    return [u, dt, A, *others]


def scan(backend: str, resets: Tensor | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda *x: selective_scan(*x, resets=resets, backend=backend)


@pytest.mark.parametrize("sizes", SIZES)
def test_every_build_equals_the_reference(build: Build, sizes: tuple[int, int, int, int]) -> None:
    inputs = tensors(*sizes)
    resets = torch.rand(sizes[:2], generator=torch.Generator().manual_seed(0)) < 0.1
    exact = with_gradients(scan("reference", resets), inputs, 1)
    assert worst(with_gradients(scan("cpp", resets), inputs, 1), exact) < 1e-13
    single = with_gradients(scan("cpp", resets), [x.float() for x in inputs], 1)
    assert worst(single, exact) < 2e-6


@pytest.mark.parametrize("sizes", SIZES)
def test_nothing_optional_is_needed(build: Build, sizes: tuple[int, int, int, int]) -> None:
    inputs = tensors(*sizes)[:5]
    exact = with_gradients(scan("reference"), inputs, 1)
    assert worst(with_gradients(scan("cpp"), inputs, 1), exact) < 1e-13


def test_strong_decays_stay_precise(build: Build) -> None:
    inputs = tensors(2, 100, 20, 16, decay=30.0)
    exact = with_gradients(scan("reference"), inputs, 1)
    assert worst(with_gradients(scan("cpp"), [x.float() for x in inputs], 1), exact) < 1e-5


def test_decays_of_zero_and_extreme_steps_make_no_nan(build: Build) -> None:
    u, dt, A, *others = (x.float() for x in tensors(1, 40, 20, 4))
    A[:, 1] = -torch.inf
    dt[:, ::3], dt[:, 1::3] = -1e4, 1e4
    results = with_gradients(scan("cpp"), [u, dt, A, *others], 1)
    assert all(x.isfinite().all() for x in results)
    exact = with_gradients(scan("reference"), [x.double() for x in (u, dt, A, *others)], 1)
    assert worst(results, exact) < 2e-6


@pytest.mark.parametrize("sizes", [(1, 50, 130, 7), (3, 40, 256, 16)])
def test_the_number_of_threads_changes_no_bit(build: Build, sizes: tuple[int, int, int, int]) -> None:
    inputs, before = [x.float() for x in tensors(*sizes)], torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(with_gradients(scan("cpp"), inputs, 1))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for others in results[1:] for one, other in zip(results[0], others, strict=True))


def test_takes_slices_as_they_lie(build: Build) -> None:
    inputs = tensors(2, 30, 20, 4)
    sliced = [torch.stack([x, torch.full_like(x, torch.nan)], 1 if x.dim() == 3 else -1) for x in inputs]
    sliced = [x.transpose(1, 2)[..., 0, :] if x.dim() == 4 else x[..., 0] for x in sliced]
    assert not any(x.is_contiguous() for x in sliced)
    for dense, strided in zip(scan("cpp")(*inputs), scan("cpp")(*sliced), strict=True):
        assert torch.equal(dense, strided)


def test_saving_for_the_backward_changes_no_bit(build: Build) -> None:
    inputs = [x.float() for x in tensors(2, 40, 20, 16)]
    plain = scan("cpp")(*inputs)
    saving = scan("cpp")(*(x.requires_grad_() for x in inputs))
    assert saving[0].requires_grad
    assert all(torch.equal(one, other) for one, other in zip(plain, saving, strict=True))


def test_denormals_are_flushed_inside_the_call_only(build: Build) -> None:
    u, dt, A, B, C = (x.float() for x in tensors(1, 5, 20, 4)[:5])
    denormal = torch.full((1, 20, 4), 1e-40)
    kept = torch.zeros_like(A)  # decays of 1: in the reference the state stays as it is
    silent = torch.zeros_like(u)
    assert scan("reference")(silent, dt, kept, B, C, None, None, None, denormal)[1].equal(denormal)
    before, threads = torch.get_num_threads(), 2
    try:
        torch.set_num_threads(threads)
        _, state = scan("cpp")(silent, dt, kept, B, C, None, None, None, denormal)
    finally:
        torch.set_num_threads(before)
    assert (state == 0).all()
    assert (denormal * 0.5 != 0).all()  # in this thread they are numbers again


def test_half_precision_inputs_are_scanned_in_single(build: Build) -> None:
    inputs = [x.to(torch.bfloat16) for x in tensors(2, 30, 20, 4)]
    y, state = scan("cpp")(*inputs)
    exact_y, exact_state = scan("reference")(*(x.double() for x in inputs))
    assert (y.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert error(state, exact_state) < 2e-6
    assert error(y, exact_y) < 4e-3  # of rounding y to 8 bits
