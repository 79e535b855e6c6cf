"""Comparison of results, and gradients of all inputs, for the tests of kernels and models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

NEGLIGIBLE = 1e-30  # differences below this are ignored, even if the expected value is smaller


def error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference divided by the norm of the expected value, in float64. inf if anything is not finite."""
    assert got.shape == expected.shape
    got, expected = widest(got), widest(expected)
    ratio = float((got - expected).norm() / (expected.norm() + NEGLIGIBLE))
    return ratio if math.isfinite(ratio) else math.inf  # max() and comparisons would miss a NaN


def largest_error(got: Tensor, expected: Tensor) -> float:
    """Largest difference of an element divided by the largest expected element, in float64. inf as in `error`."""
    assert got.shape == expected.shape
    if not expected.numel():
        return 0.0
    got, expected = widest(got), widest(expected)
    ratio = float((got - expected).abs().max() / (expected.abs().max() + NEGLIGIBLE))
    return ratio if math.isfinite(ratio) else math.inf


def widest(x: Tensor) -> Tensor:
    """x detached, in float64 or complex128."""
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


def worst(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest error over pairs of tensors."""
    return max(error(a, b) for a, b in zip(got, expected, strict=True))


def same_bits(got: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Use this number of threads within the block, and one thread after it."""
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def content(*tensors: Tensor | None) -> bytes:
    """A hash of the tensors' values, shapes and dtypes."""
    digest = hashlib.blake2b()
    for x in tensors:
        digest.update(b"none" if x is None else f"{x.dtype} {tuple(x.shape)} ".encode() + x.detach().numpy().tobytes())
    return digest.digest()


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """One standard normal float64 tensor per shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def with_gradients(function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """The outputs of `function`, then the gradients of all inputs, for a random linear loss of all outputs."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    outputs = function(*leaves)
    real = [torch.view_as_real(output) if output.is_complex() else output for output in outputs]
    weights = normal(seed, *(tuple(output.shape) for output in real))
    terms = [(x.double() * weight.to(x.device)).sum() for x, weight in zip(real, weights, strict=True)]
    loss = torch.stack(terms).sum()
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [*(output.detach() for output in outputs), *gradients]
