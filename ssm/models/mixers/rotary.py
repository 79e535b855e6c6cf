"""Rotary positions (Su et al. 2021): rotations R(p) of the first `dim` dimensions; R(n) q . R(m) k reads n - m."""

from __future__ import annotations

import torch
from torch import Tensor


def rotation(positions: Tensor, dim: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position * base^(-2i / dim), i < dim / 2.

    Angles are computed in float64: in float32 their error at position 100,000 is 0.01 radians.

    Args:
        positions: (T,) integers.

    Returns:
        (T, dim / 2) each, in `dtype`.
    """
    exponents = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / max(dim, 1)
    angles = positions.to(torch.float64).unsqueeze(-1) * base**-exponents  # (T, dim / 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first dim dimensions of x (..., K), in pairs (i, i + dim / 2); cos and sin (..., dim / 2)."""
    half = cos.shape[-1]
    left, right, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], -1)
