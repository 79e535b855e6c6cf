"""Gated DeltaNet (Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule")."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.mixers.delta_rule import DeltaRule
from ssm.models.mixers.parts import initial_step_bias, upcast
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer

GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


class GatedDeltaNet(DeltaRule, kind="gated_deltanet"):
    """The delta rule with a decay alpha_t = exp(-exp(A_log) softplus(x_t + b)) for each head (Section 3)."""

    def __init__(self, spec: GatedDeltaNetMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        if spec.decay != "none":
            self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(*spec.a_range).log())
            self.dt_bias = nn.Parameter(initial_step_bias(self.heads, *spec.dt_range))

    def _log_decay(self, *extra: Tensor) -> Tensor | None:
        if self.spec.decay == "none":
            return None
        return -upcast(self.A_log).exp() * F.softplus(upcast(extra[0]) + self.dt_bias)  # in float32 also under autocast

    def _gated(self, y: Tensor, *extra: Tensor) -> Tensor:
        return y * GATES[self.spec.gate_activation](upcast(extra[-1])) if self.spec.gate else y
