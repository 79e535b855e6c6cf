"""Properties of only the C++: results larger than the caches, long sums, denormals, shared constants."""

from __future__ import annotations

import math

import pytest
import torch
from kernels.builds import Build
from kernels.cases import CPP, ROW, exact, exhaustive, run
from ssm_kernels import causal_conv1d, diagonal_scan, selective_scan
from ssm_kernels.delta_scan import cpp as delta_cpp
from ssm_kernels.gated_scan import cpp as gated_cpp
from ssm_kernels.native import load
from ssm_kernels.testing.cases import EVERY, make, variants
from ssm_kernels.testing.numerics import error, same_bits, threads, with_gradients, worst
from torch import Tensor

pytestmark = pytest.mark.skipif(not CPP, reason="there is no C++ compiler")


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        *((torch.float32, 1000), (torch.complex64, 1001)),
        *exhaustive((torch.float32, 1001), (torch.complex64, 1000)),
    ],
)
def test_results_larger_than_the_caches_are_complete(dtype: torch.dtype, channels: int) -> None:
    """The kernels write such results with streaming stores, if the rows are aligned."""
    length = 2**25 // (channels * dtype.itemsize)  # 32 MiB per tensor
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
        after = torch.cat([(a * db)[:, 1:], torch.zeros_like(db[:, :1])], 1)  # a is real, so its conjugate is a
        assert error(torch.view_as_real(db + 0j), torch.view_as_real(dh + after + 0j)) < 1e-6
        assert error(torch.view_as_real(da + 0j), torch.view_as_real(db * before + 0j)) < 1e-6


def test_long_sums_are_precise() -> None:
    """Gradients of tensors that all steps share. A running float32 sum of 2^16 positive terms has an error of 1e-4."""
    one = torch.ones(1, 2**16, 1)

    def decay(a: Tensor) -> tuple[Tensor]:
        return (diagonal_scan(a, one.to(a.dtype), backend="cpp")[0].sum(),)

    def weight(w: Tensor) -> tuple[Tensor]:
        return (causal_conv1d(one.to(w.dtype), w, backend="cpp")[0].sum(),)

    for function, shared in ((decay, torch.full((1,), 0.5)), (weight, torch.full((1, 4), 0.1))):
        wanted = with_gradients(function, [shared.double()], 0)[1]
        assert error(with_gradients(function, [shared], 0)[1], wanted) < 1e-6


@pytest.mark.parametrize(ROW, [case for case in CPP if "log_decay" in make(case[0], variant=case[2]).tensors])
def test_slow_decays_over_a_long_sequence(operation: str, backend: str, variant: int) -> None:
    """A rounded decay close to 1, multiplied by itself 2000 times, has an error of 1e-5.

    The gated scan rounds the decay every 16 or 32 steps. The delta scan rounds it every 8 or 16 steps: its states have
    an error of 4e-6 here.
    """
    case = make(operation, 7, length=2000, batch=1, width=2, state=3, variant=variant)
    tensors = case.tensors | {name: case.tensors[name].abs() for name in ("q", "k")}
    tensors["log_decay"] = torch.full_like(tensors["log_decay"], -1.1e-4)
    tensors |= {name: torch.zeros_like(x) for name, x in tensors.items() if name == "b"}  # only the decay forgets
    tensors |= {name: 0.01 * x for name, x in tensors.items() if name == "beta"}
    case = case._replace(tensors=tensors).to(torch.float32)
    tolerance = 2e-6 if operation == "gated_scan" else 6e-6
    assert worst(run(case, backend), exact(case)) < tolerance


@pytest.mark.parametrize("variant", variants("delta_scan"))
def test_columns_are_split_over_threads_without_a_change_of_bits(variant: int) -> None:
    """A sequence with fewer heads than threads: the forward pass works on slices of its 100 columns."""
    for dtype in (torch.float32, torch.float64):
        case = make("delta_scan", 4, length=70, batch=1, width=100, state=5, variant=variant, resets=0.1).to(dtype)
        expected, read = run(case, "cpp"), case.function("cpp")(*case.values)
        for number in (4, 16):
            with threads(number):
                assert same_bits(run(case, "cpp"), expected)
                assert same_bits(case.function("cpp")(*case.values), read)


@pytest.mark.parametrize("variant", variants("delta_scan"))
def test_values_without_columns(variant: int, memory_of_nans: None) -> None:
    case = make("delta_scan", 5, length=20, width=0, variant=variant).to(torch.float32)
    assert worst(run(case, "cpp"), exact(case)) == 0


@pytest.mark.parametrize("variant", variants("delta_scan"))
def test_infinite_values_do_not_reach_earlier_steps(variant: int) -> None:
    """Not even within a block."""
    case = make("delta_scan", 3, length=6, variant=variant)
    whole, _ = case.function("cpp")(*case.values)
    case.tensors["v"][:, 4] = math.inf
    assert torch.equal(case.function("cpp")(*case.values)[0][:, :4], whole[:, :4])


def test_denormals_are_flushed_inside_the_call_only(build: Build) -> None:
    """In all threads of the call. A decay of 1 does not change the state in the reference."""
    B, T, D, N = 1, 5, 20, 4
    silent, rates, projection = torch.zeros(B, T, D), torch.zeros(D, N), torch.ones(B, T, N)
    denormal = torch.full((B, D, N), 1e-40)
    given = (silent, silent, rates, projection, projection)
    assert selective_scan(*given, h0=denormal, backend="reference")[1].equal(denormal)
    with threads(2):
        _, state = selective_scan(*given, h0=denormal, backend="cpp")
    assert (state == 0).all()
    for operation in EVERY:
        run(make(operation, length=5).to(torch.float32), "cpp")
    assert (denormal * 0.5 != 0).all()  # this thread does not flush denormals


def test_python_and_cpp_agree_on_chunks_and_blocks() -> None:
    assert load(gated_cpp.SOURCE).gated_scan_chunk() == gated_cpp.CHUNK
    assert load(delta_cpp.SOURCE).delta_scan_chunk() == delta_cpp.CHUNK
    assert load(delta_cpp.SOURCE).delta_scan_tokens() == delta_cpp.TOKENS


def test_it_runs_only_on_the_cpu() -> None:
    for module in (gated_cpp, delta_cpp):
        assert module.unavailable(torch.device("cpu")) is None
        assert module.unavailable(torch.device("cuda")) == "it runs on the CPU, not on cuda"
