"""Inputs and options of the diagonal scan."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.diagonal_scan`."""

    a: Tensor  # (B, T, D) or (D,)
    b: Tensor  # (B, T, D)
    h0: Tensor | None  # (B, D)
    resets: Tensor | None  # (B, T) bool


class Options(NamedTuple):
    """There are no options."""


def gradient_like(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of an input. That of a real input of a complex scan is the real part."""
    return gradient.real.contiguous() if gradient.is_complex() and not x.is_complex() else gradient
