"""Inputs and options of the gated scan."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.gated_scan`."""

    q: Tensor  # (B, T, G, K)
    k: Tensor  # (B, T, G, K)
    v: Tensor  # (B, T, H, V)
    log_decay: Tensor | None  # (H,), (B, T, H) or (B, T, H, K)
    h0: Tensor | None  # (B, H, K, V)
    bonus: Tensor | None  # (H, K)
    resets: Tensor | None  # (B, T) bool


class Options(NamedTuple):
    """`chunk` is the number of tokens per chunk. It changes only speed and rounding."""

    chunk: int
