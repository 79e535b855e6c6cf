"""How two results are compared, and gradients of all inputs at once: for the tests of kernels and of models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

NEGLIGIBLE = 1e-30  # a difference this small is none, though the expected value may be smaller still


def error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected, in float64; inf where anything is not finite."""
    assert got.shape == expected.shape
    got, expected = widest(got), widest(expected)
    ratio = float((got - expected).norm() / (expected.norm() + NEGLIGIBLE))
    return ratio if math.isfinite(ratio) else math.inf  # max() and comparisons would pass over a NaN


def widest(x: Tensor) -> Tensor:
    """x detached, in float64 or complex128."""
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


def worst(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest error over pairs of tensors."""
    return max(error(a, b) for a, b in zip(got, expected, strict=True))


def content(*tensors: Tensor | None) -> bytes:
    """A key that equal tensors share, so that the oracle need not be asked about the same numbers twice."""
    digest = hashlib.blake2b()
    for x in tensors:
        digest.update(b"none" if x is None else f"{x.dtype} {tuple(x.shape)} ".encode() + x.detach().numpy().tobytes())
    return digest.digest()


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """A standard normal float64 tensor of every shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def with_gradients(function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """The outputs of `function`, then the gradient of every input under a random linear loss that touches them all."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    outputs = function(*leaves)
    real = [torch.view_as_real(output) if output.is_complex() else output for output in outputs]
    weights = normal(seed, *(tuple(output.shape) for output in real))
    loss = sum((output.double() * weight).sum() for output, weight in zip(real, weights, strict=True))
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [*(output.detach() for output in outputs), *gradients]
