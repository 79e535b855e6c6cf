"""How two results are compared, and gradients of all inputs at once: for the tests of kernels and of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

NEGLIGIBLE = 1e-30  # a difference this small is none, though the expected value may be smaller still


def error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected, in float64."""
    assert got.shape == expected.shape
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / (expected.norm() + NEGLIGIBLE))


def worst(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest error over pairs of tensors."""
    return max(error(a, b) for a, b in zip(got, expected, strict=True))


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """A standard normal float64 tensor of every shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def with_gradients(function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """The outputs of `function`, then the gradient of every input under a random linear loss that touches them all."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    outputs = function(*leaves)
    weights = normal(seed, *(tuple(output.shape) for output in outputs))
    loss = sum((output.double() * weight).sum() for output, weight in zip(outputs, weights, strict=True))
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [*(output.detach() for output in outputs), *gradients]
