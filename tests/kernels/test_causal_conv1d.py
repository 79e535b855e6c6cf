"""The short convolution: equal to its oracle and to PyTorch's, with resets, with its state, and however it is cut."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import causal_conv1d
from torch import Tensor

SEEDS = st.integers(0, 2**31)
LENGTHS = st.integers(1, 12)
WIDTHS = st.integers(1, 5)
ACTIVATIONS = st.sampled_from((None, "silu"))
B, D = 2, 3


def inputs(seed: int, length: int, width: int) -> list[Tensor]:
    """x, weight, bias and state in float64."""
    return normal(seed, (B, length, D), (D, width), (D,), (B, width - 1, D))


def some_resets(seed: int, length: int, share: float = 0.3) -> Tensor:
    return torch.rand(B, length, generator=torch.Generator().manual_seed(seed)) < share


@settings(deadline=None, max_examples=150)
@given(SEEDS, LENGTHS, WIDTHS, ACTIVATIONS, st.booleans())
def test_equals_the_reference(seed: int, length: int, width: int, activation: str | None, with_resets: bool) -> None:
    resets = some_resets(seed, length) if with_resets else None

    def run(*tensors: Tensor, backend: str) -> tuple[Tensor, Tensor]:
        return causal_conv1d(*tensors, resets=resets, activation=activation, backend=backend)

    expected = with_gradients(lambda *x: run(*x, backend="reference"), inputs(seed, length, width), seed)
    got = with_gradients(lambda *x: run(*x, backend="torch"), inputs(seed, length, width), seed)
    assert worst(got, expected) < 1e-13


@settings(deadline=None, max_examples=50)
@given(SEEDS, LENGTHS, WIDTHS)
def test_equals_conv1d_of_torch(seed: int, length: int, width: int) -> None:
    x, weight, bias, state = inputs(seed, length, width)
    everything = torch.cat([state, x], 1)  # (B, K - 1 + T, D)
    expected = F.silu(F.conv1d(everything.mT, weight.unsqueeze(1), bias, groups=D)).mT
    y, after = causal_conv1d(x, weight, bias, state, activation="silu")
    assert worst([y, after], [expected, everything[:, length:]]) < 1e-13


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_no_bias_and_no_state_are_zeros(backend: str) -> None:
    x, weight, bias, state = inputs(0, 6, 4)
    expected = causal_conv1d(x, weight, torch.zeros_like(bias), torch.zeros_like(state), backend=backend)
    assert worst(causal_conv1d(x, weight, backend=backend), expected) == 0


@settings(deadline=None, max_examples=100)
@given(SEEDS, LENGTHS, WIDTHS, st.booleans(), st.lists(st.integers(1, 11), max_size=4))
def test_cutting_it_anywhere_changes_nothing(
    seed: int, length: int, width: int, with_resets: bool, cuts: list[int]
) -> None:
    resets = some_resets(seed, length) if with_resets else None
    borders = [0, *sorted({cut for cut in cuts if cut < length}), length]

    def in_pieces(x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for start, end in itertools.pairwise(borders):
            here = None if resets is None else resets[:, start:end]
            y, state = causal_conv1d(x[:, start:end], weight, bias, state, resets=here)
            outputs.append(y)
        return torch.cat(outputs, 1), state

    tensors = inputs(seed, length, width)
    whole = with_gradients(lambda *x: causal_conv1d(*x, resets=resets), tensors, seed)
    assert worst(with_gradients(in_pieces, tensors, seed), whole) < 1e-13


@settings(deadline=None, max_examples=50)
@given(SEEDS, LENGTHS, WIDTHS)
def test_a_reset_starts_anew(seed: int, length: int, width: int) -> None:
    """What follows a reset is what a run of its own from the zero state says."""
    x, weight, bias, state = inputs(seed, length + 3, width)
    resets = torch.zeros(B, length + 3, dtype=torch.bool)
    resets[:, 3] = True
    y, after = causal_conv1d(x, weight, bias, state, resets=resets)
    assert worst([y[:, 3:], after], causal_conv1d(x[:, 3:], weight, bias)) < 1e-14
    assert worst([y[:, :3]], [causal_conv1d(x[:, :3], weight, bias, state)[0]]) < 1e-14


@pytest.mark.parametrize("width", [1, 4])
def test_gradients_are_those_of_finite_differences(width: int) -> None:
    resets = some_resets(1, 6)
    tensors = [x.requires_grad_() for x in inputs(1, 6, width)[: 3 if width == 1 else 4]]
    assert torch.autograd.gradcheck(lambda *x: causal_conv1d(*x, resets=resets, activation="silu"), tensors)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)])
def test_lower_precision_stays_close(dtype: torch.dtype, tolerance: float) -> None:
    low = [x.to(dtype) for x in inputs(2, 30, 4)]
    exact = with_gradients(lambda *x: causal_conv1d(*x, activation="silu"), [x.double() for x in low], 0)
    got = with_gradients(lambda *x: causal_conv1d(*x, activation="silu"), low, 0)
    assert {x.dtype for x in got} == {dtype}
    assert worst(got, exact) < tolerance


def test_the_same_call_gives_the_same_bits() -> None:
    tensors = [x.float() for x in inputs(3, 30, 4)]
    one, two = (with_gradients(causal_conv1d, tensors, 0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("x", (2, 5)),
        ("x", (2, 0, 3)),
        ("weight", (4,)),
        ("weight", (2, 4)),
        ("weight", (3, 0)),
        ("bias", (2,)),
        ("state", (2, 4, 3)),
        ("state", (1, 3, 3)),
        ("resets", (2, 4)),
    ],
)
def test_wrong_shapes_are_named(name: str, shape: tuple[int, ...]) -> None:
    shapes = {"x": (2, 5, 3), "weight": (3, 4), "bias": (3,), "state": (2, 3, 3), "resets": (2, 5)} | {name: shape}
    x, weight, bias, state, resets = (torch.zeros(value) for value in shapes.values())
    shown = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"x is \(B, T, D\).*got.*{name} {shown}"):
        causal_conv1d(x, weight, bias, state, resets=resets.bool())


def test_wrong_names_are_named() -> None:
    x, weight, *_ = inputs(0, 3, 2)
    with pytest.raises(ValueError, match="unknown activation 'gelu', expected None or silu"):
        causal_conv1d(x, weight, activation="gelu")
    with pytest.raises(ValueError, match="unknown backend 'cuda', expected torch or reference"):
        causal_conv1d(x, weight, backend="cuda")
