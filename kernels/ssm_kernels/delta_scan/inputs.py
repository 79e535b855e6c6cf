"""Inputs and options of the delta scan."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Arguments of `ssm_kernels.delta_scan`: either beta, or both a and b."""

    q: Tensor  # (B, T, G, K)
    k: Tensor  # (B, T, G, K)
    v: Tensor  # (B, T, H, V)
    beta: Tensor | None  # (B, T, H)
    log_decay: Tensor | None  # (B, T, H) or (B, T, H, K)
    h0: Tensor | None  # (B, H, K, V)
    a: Tensor | None  # (B, T, H, K)
    b: Tensor | None  # (B, T, H, K)
    resets: Tensor | None  # (B, T) bool


class Options(NamedTuple):
    """`chunk` is the number of tokens per chunk. It changes only speed and rounding."""

    chunk: int
