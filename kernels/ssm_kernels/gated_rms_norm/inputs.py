"""What a gated RMSNorm takes."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.gated_rms_norm`."""

    x: Tensor  # (..., D)
    weight: Tensor  # (D,)
    gate: Tensor | None  # (..., D)


class Options(NamedTuple):
    """Groups of channels that are normalized by themselves, and what is added to the mean square."""

    groups: int
    eps: float
