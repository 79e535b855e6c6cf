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
