"""Inputs and options of the causal convolution."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.causal_conv1d`."""

    x: Tensor  # (B, T, D)
    weight: Tensor  # (D, K)
    bias: Tensor | None  # (D,)
    state: Tensor | None  # (B, K - 1, D)
    resets: Tensor | None  # (B, T) bool


class Options(NamedTuple):
    """`activation` is "silu", or "" for none."""

    activation: str
