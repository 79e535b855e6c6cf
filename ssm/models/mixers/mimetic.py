"""Mimetic initialization (Trockman et al. 2024, "Mimetic Initialization Helps State Space Models Learn to Recall")."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.mixers.parts import inverse_softplus
from ssm.specs.mixers.mimetic import Mimetic


def negative_a(A_log: Tensor, mimetic: Mimetic) -> Tensor:
    """-A: exp(A_log), or with the first part exp(-c A_log), which is small where A_log is positive (Section 3).

    It is a change of the parameters' meaning, for the whole of training, as in the paper. To the letter: where A_log is
    0 at initialization, -A is 1 with any c. So it is in the first state of every channel of Mamba-1, whose -A are 1, 2
    ... N: with dt = 1 it keeps .37 of itself a step, while the others keep nearly everything.
    """
    return (A_log if mimetic.a is None else -mimetic.a * A_log).exp()


@torch.no_grad()
def apply_mimetic(
    mimetic: Mimetic,
    *,
    dt_weight: Tensor,
    dt_bias: Tensor,
    B_weight: Tensor,
    C_weight: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
) -> None:
    """Overwrite the initial weights of the parts that are switched on.

    Args:
        mimetic: the switches.
        dt_weight: of the linear map to dt, whatever its shape.
        dt_bias: what is added to it before the softplus.
        B_weight, C_weight: of the linear maps to B and to C, of the same shape.
        conv_weight: (channels, K), its last column on the present input.
        conv_bias: (channels,).
    """
    if mimetic.dt:
        dt_weight.zero_()
        dt_bias.copy_(inverse_softplus(torch.ones_like(dt_bias)))
    if mimetic.bc:
        C_weight.add_(B_weight).div_(2)
    if mimetic.conv:
        conv_weight.zero_()[:, -1] = 1.0
        conv_bias.zero_()
