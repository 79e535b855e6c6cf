"""Inputs and options of the selective scan."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.selective_scan`."""

    u: Tensor  # (B, T, D)
    dt: Tensor  # (B, T, D)
    A: Tensor  # (D, N)
    B: Tensor  # (B, T, N)
    C: Tensor  # (B, T, N)
    D: Tensor | None  # (D,)
    dt_bias: Tensor | None  # (D,)
    z: Tensor | None  # (B, T, D)
    h0: Tensor | None  # (B, D, N)
    resets: Tensor | None  # (B, T) bool


class Options(NamedTuple):
    """Whether softplus is applied to dt."""

    dt_softplus: bool
