"""Inputs and options of the gated RMSNorm."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """Shapes as in `ssm_kernels.gated_rms_norm`."""

    x: Tensor  # (..., D)
    weight: Tensor  # (D,)
    gate: Tensor | None  # (..., D)


class Options(NamedTuple):
    """Number of channel groups that are normalized separately, and the number added to the mean square."""

    groups: int
    eps: float
