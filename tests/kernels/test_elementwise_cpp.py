"""The element-wise operations in C++: every build, tails of vectors, segments, threads, and large results."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from kernels.builds import Build
from kernels.numerics import content, error, normal, with_gradients, worst
from ssm_kernels import causal_conv1d, diagonal_scan, gated_rms_norm
from torch import Tensor

Outputs = tuple[Tensor, ...]

_known: dict[tuple[str, bytes], list[Tensor]] = {}  # the reference is asked once for all instruction sets


@pytest.fixture(autouse=True)
def nan_in_new_memory() -> Iterator[None]:
    """What a kernel forgets to write is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def some_resets(batch: int, length: int) -> Tensor:
    resets = torch.rand(batch, length, generator=torch.Generator().manual_seed(0)) < 0.05
    resets[0, :2] = True  # where a convolution reaches back to its state
    return resets


def scan(backend: str, resets: Tensor | None) -> Callable[..., Outputs]:
    def run(a: Tensor, b: Tensor, h0: Tensor) -> Outputs:
        return diagonal_scan(a, b, h0, resets=resets, backend=backend)

    return run


def complex_scan(backend: str, resets: Tensor | None) -> Callable[..., Outputs]:
    """Complex inputs and outputs as pairs of real ones."""

    def run(a: Tensor, b: Tensor, h0: Tensor) -> Outputs:
        a, b, h0 = (torch.view_as_complex(x) for x in (a, b, h0))
        h, hT = diagonal_scan(a, b, h0, resets=resets, backend=backend)
        return torch.view_as_real(h), torch.view_as_real(hT)

    return run


def convolution(backend: str, resets: Tensor | None) -> Callable[..., Outputs]:
    return lambda *x: causal_conv1d(*x, resets=resets, activation="silu", backend=backend)


def norm(backend: str, resets: Tensor | None) -> Callable[..., Outputs]:
    return lambda *x: (gated_rms_norm(*x, backend=backend),)


Maker = Callable[[str, Tensor | None], Callable[..., Outputs]]
Shapes = Callable[[int, int, int], list[tuple[int, ...]]]
OPERATIONS: dict[str, tuple[Maker, Shapes]] = {
    "scan": (scan, lambda B, T, D: [(B, T, D), (B, T, D), (B, D)]),
    "constant scan": (scan, lambda B, T, D: [(D,), (B, T, D), (B, D)]),
    "complex scan": (complex_scan, lambda B, T, D: [(B, T, D, 2), (B, T, D, 2), (B, D, 2)]),
    "constant complex scan": (complex_scan, lambda B, T, D: [(D, 2), (B, T, D, 2), (B, D, 2)]),
    "convolution of 4": (convolution, lambda B, T, D: [(B, T, D), (D, 4), (D,), (B, 3, D)]),
    "convolution of 7": (convolution, lambda B, T, D: [(B, T, D), (D, 7), (D,), (B, 6, D)]),
    "norm": (norm, lambda B, T, D: [(B, T, D), (D,), (B, T, D)]),
}


def numbers(operation: str, seed: int, batch: int, length: int, channels: int) -> list[Tensor]:
    """The operation's inputs in float64; decays are between 0 and 1 (0.7 + 0.7i at most)."""
    first, *rest = normal(seed, *OPERATIONS[operation][1](batch, length, channels))
    return [torch.sigmoid(first) * 0.7 if "scan" in operation else first, *rest]


def by_reference(operation: str, resets: Tensor | None, inputs: list[Tensor]) -> list[Tensor]:
    """Outputs and gradients of the reference."""
    key = (operation, content(resets, *inputs))
    if key not in _known:
        _known[key] = with_gradients(OPERATIONS[operation][0]("reference", resets), inputs, 0)
    return _known[key]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3, 16, 67])
def test_every_build_gives_the_same(build: Build, operation: str, channels: int) -> None:
    """Channels that fill no vector, just one, and one chunk and a bit; steps that fill no tile, and two segments."""
    make, _ = OPERATIONS[operation]
    for length in (1, 5, 131):
        for resets in (None, some_resets(2, length)):
            inputs = numbers(operation, 1, 2, length, channels)
            expected = by_reference(operation, resets, inputs)
            assert worst(with_gradients(make("cpp", resets), inputs, 0), expected) < 3e-13
            low = [x.float() for x in inputs]
            expected = by_reference(operation, resets, [x.double() for x in low])
            got = with_gradients(make("cpp", resets), low, 0)
            assert {x.dtype for x in got} == {torch.float32}
            assert worst(got, expected) < (2e-6 if channels > 1 or operation != "norm" else 1)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("batch", "length", "channels"), [(1, 300, 200), (3, 257, 70)])
def test_threads_change_no_bit(operation: str, batch: int, length: int, channels: int) -> None:
    make, _ = OPERATIONS[operation]
    inputs = [x.float() for x in numbers(operation, 2, batch, length, channels)]
    results = []
    for threads in (1, 2, 5, 2):
        torch.set_num_threads(threads)
        try:
            results.append(with_gradients(make("cpp", None), inputs, 0))
        finally:
            torch.set_num_threads(1)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        *((torch.float32, 1000), (torch.complex64, 1001)),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in ((torch.float32, 1001), (torch.complex64, 1000))
        ),
    ],
)
def test_results_that_leave_the_caches_are_whole(dtype: torch.dtype, channels: int) -> None:
    """They are written another way, if the rows are aligned: more bytes than half of any cache of a test's machine."""
    length = 2**25 // (channels * dtype.itemsize)  # 32 MiB a tensor
    generator = torch.Generator().manual_seed(3)
    a = torch.rand(1, length, channels, generator=generator).to(dtype)
    b = torch.randn(1, length, channels, generator=generator).to(dtype)
    a.requires_grad_(), b.requires_grad_()
    h, hT = diagonal_scan(a, b, backend="cpp")
    before = torch.cat([h.new_zeros(1, 1, channels), h[:, :-1]], 1).detach()
    with torch.no_grad():
        assert error(torch.view_as_real(h + 0j), torch.view_as_real(a * before + b + 0j)) < 1e-6
        assert torch.equal(hT, h[:, -1])
    dh = torch.randn(1, length, channels, generator=generator).to(dtype)
    da, db = torch.autograd.grad(h, (a, b), dh)
    with torch.no_grad():
        after = torch.cat([(a * db)[:, 1:], torch.zeros_like(db[:, :1])], 1)  # a is real: it is its own conjugate
        assert error(torch.view_as_real(db + 0j), torch.view_as_real(dh + after + 0j)) < 1e-6
        assert error(torch.view_as_real(da + 0j), torch.view_as_real(db * before + 0j)) < 1e-6


def test_long_sums_lose_nothing() -> None:
    """Gradients of what all steps share: a running sum in float32 of 2^16 terms of one sign would lose 1e-4."""
    one = torch.ones(1, 2**16, 1)

    def decay(a: Tensor) -> Outputs:
        return (diagonal_scan(a, one.to(a.dtype), backend="cpp")[0].sum(),)

    def weight(w: Tensor) -> Outputs:
        return (causal_conv1d(one.to(w.dtype), w, backend="cpp")[0].sum(),)

    for function, shared in ((decay, torch.full((1,), 0.5)), (weight, torch.full((1, 4), 0.1))):
        exact = with_gradients(function, [shared.double()], 0)[1]
        assert error(with_gradients(function, [shared], 0)[1], exact) < 1e-6


@pytest.mark.filterwarnings("error")  # torch warns where an imaginary part is dropped
def test_a_real_decay_of_complex_inputs_has_a_real_gradient() -> None:
    a, b = normal(4, (1, 9, 3), (1, 9, 3, 2))

    def run(backend: str) -> Callable[..., Outputs]:
        return lambda a, b: (torch.view_as_real(diagonal_scan(a, torch.view_as_complex(b), backend=backend)[0]),)

    assert worst(with_gradients(run("cpp"), [a, b], 0), with_gradients(run("reference"), [a, b], 0)) < 1e-14


def test_lazy_conjugates_are_seen() -> None:
    """A conjugate and the imaginary part of one are views with a bit set; their memory holds something else."""
    a, b = (torch.view_as_complex(x) for x in normal(5, (1, 5, 3, 2), (1, 5, 3, 2)))
    lazy = diagonal_scan(a.conj(), b.conj(), backend="cpp")
    plain = diagonal_scan(a.conj_physical(), b.conj_physical(), backend="cpp")
    assert all(torch.equal(x, y) for x, y in zip(lazy, plain, strict=True))
    weight = torch.ones(3, dtype=torch.float64)
    negative = gated_rms_norm(a.conj().imag, weight, backend="cpp")
    assert torch.equal(negative, -gated_rms_norm(a.imag, weight, backend="cpp"))


@pytest.mark.parametrize("width", [1, 4, 6])
def test_a_convolution_takes_slices_of_rows(width: int) -> None:
    """The x of Mamba-2 is a slice of a projection's rows: what lies beside it must not matter."""
    inputs = normal(6, (2, 20, 21), (21, width), (21,), (2, width - 1, 21))

    def sliced(x: Tensor, *rest: Tensor) -> Outputs:
        beside = torch.full((2, 20, 3), torch.nan, dtype=x.dtype)
        wide = torch.cat([beside, x, beside], -1)
        return causal_conv1d(wide[..., 3:-3], *rest, activation="silu", backend="cpp")

    expected = with_gradients(convolution("cpp", None), inputs, 0)
    assert worst(with_gradients(sliced, inputs, 0), expected) == 0


def test_the_state_keeps_no_input_alive() -> None:
    x, weight = normal(7, (1, 100, 3), (3, 4))
    _, state = causal_conv1d(x, weight, backend="cpp")
    assert state.untyped_storage().nbytes() == state.numel() * state.element_size()
    _, hT = diagonal_scan(x, x, backend="cpp")
    assert hT.untyped_storage().nbytes() == hT.numel() * hT.element_size()


def test_nothing_at_all_is_fine() -> None:
    """A batch of no sequences."""
    for operation, (make, _) in OPERATIONS.items():
        results = with_gradients(make("cpp", None), numbers(operation, 8, 0, 5, 3), 0)
        assert all(x.isfinite().all() for x in results)


def test_denormals_of_others_survive() -> None:
    for operation, (make, _) in OPERATIONS.items():
        with_gradients(make("cpp", None), numbers(operation, 9, 1, 5, 3), 0)
    assert float(torch.tensor(1e-40) * 1.5) > 0


@pytest.mark.parametrize("length", [1, 2, 3, 10])
def test_a_state_that_nothing_depends_on_has_a_gradient_of_zeros(length: int) -> None:
    x, weight, bias, state = (t.requires_grad_() for t in normal(5, (2, length, 6), (6, 4), (6,), (2, 3, 6)))
    y, after = causal_conv1d(x, weight, bias, state, resets=some_resets(2, length), activation="silu", backend="cpp")
    leaves = (x, weight, bias, state)
    expected = torch.autograd.grad(y.sum() + (0 * after).sum(), leaves, retain_graph=True)
    assert all(map(torch.equal, torch.autograd.grad(y.sum(), leaves), expected))
