"""Mimetic initialization (Trockman et al. 2024, "Mimetic Initialization Helps State Space Models Learn to Recall")."""

from __future__ import annotations

import torch
from torch import Tensor

from ssm.models.mixers.parts import inverse_softplus
from ssm.specs.mixers.mimetic import Mimetic


def negative_a(A_log: Tensor, mimetic: Mimetic) -> Tensor:
    """-A: exp(A_log), or exp(-c A_log) with mimetic A, which is small where A_log is positive (Section 3).

    As in the paper, this changes the meaning of the parameters during all of training. If A_log is initially 0, -A is 1
    for every c. This is the first state of each channel of Mamba-1, where -A is 1, 2, ..., N. With dt = 1, this state
    keeps a share of 0.37 in each step, and the other states keep nearly everything.
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
    """Overwrite the initial weights of the parts that the spec selects.

    Args:
        mimetic: the spec.
        dt_weight: weight of the linear map to dt, of any shape.
        dt_bias: bias of dt before the softplus.
        B_weight, C_weight: weights of the linear maps to B and to C, of the same shape.
        conv_weight: (channels, K); the last column multiplies the present input.
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
