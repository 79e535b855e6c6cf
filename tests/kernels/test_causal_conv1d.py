"""The short convolution: equal to PyTorch's, and what its state is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.cases import PAIRS
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import causal_conv1d
from torch import Tensor

B, D = 2, 3
backends = pytest.mark.parametrize(
    "backend", ["reference", *(name for operation, name in PAIRS if operation == "causal_conv1d")]
)


def inputs(seed: int, length: int, width: int) -> list[Tensor]:
    """x, weight, bias and state in float64."""
    return normal(seed, (B, length, D), (D, width), (D,), (B, width - 1, D))


@backends
def test_equals_conv1d_of_torch(backend: str) -> None:
    def by_torch(x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        everything = torch.cat([state, x], 1)  # (B, K - 1 + T, D)
        y = F.silu(F.conv1d(everything.mT, weight.unsqueeze(1), bias, groups=D)).mT
        return y, everything[:, x.shape[1] :]

    @settings(deadline=None, max_examples=50)
    @given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 5))
    def check(seed: int, length: int, width: int) -> None:
        tensors = inputs(seed, length, width)
        expected = with_gradients(by_torch, tensors, seed)
        got = with_gradients(lambda *x: causal_conv1d(*x, activation="silu", backend=backend), tensors, seed)
        assert worst(got, expected) < 1e-13

    check()


@backends
def test_no_bias_and_no_state_are_zeros(backend: str) -> None:
    x, weight, bias, state = inputs(0, 6, 4)
    expected = causal_conv1d(x, weight, torch.zeros_like(bias), torch.zeros_like(state), backend=backend)
    assert worst(causal_conv1d(x, weight, backend=backend), expected) == 0


@backends
def test_the_state_is_the_last_inputs(backend: str) -> None:
    x, weight, bias, state = inputs(1, 6, 4)
    assert torch.equal(causal_conv1d(x, weight, bias, state, backend=backend)[1], x[:, -3:])
    _, after = causal_conv1d(x[:, :2], weight, bias, state, backend=backend)
    assert torch.equal(after, torch.cat([state[:, 2:], x[:, :2]], 1))
