"""Kimi Delta Attention (Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.delta_rule import DeltaRule
from ssm.models.mixers.parts import initial_step_bias, scaled_xavier_init, upcast
from ssm.specs.mixers.kda import KdaMixer


class Kda(DeltaRule, kind="kda"):
    """The delta rule with a decay for each dimension of a key. Decay and gate are low-rank maps, of rank R."""

    def __init__(self, spec: KdaMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        keys, values, rank = self.heads * self.key_dim, self.heads * self.value_dim, spec.rank(d_model)
        self.decay_proj = Linear(rank, keys, bias=False)
        self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(*spec.a_range).log())
        self.dt_bias = nn.Parameter(initial_step_bias(keys, *spec.dt_range))
        self.gate_proj = Linear(rank, values, bias=spec.gate_bias)
        for linear in (self.decay_proj, self.gate_proj):
            scaled_xavier_init(linear.weight)
        if spec.gate_bias:
            nn.init.zeros_(self.gate_proj.bias)

    def _log_decay(self, *extra: Tensor) -> Tensor:
        dt = F.softplus(upcast(self.decay_proj(extra[0])) + self.dt_bias)  # (..., H K), in float32 also under autocast
        return -upcast(self.A_log).exp().unsqueeze(-1) * dt.unflatten(-1, (self.heads, -1))  # (..., H, K)

    def _gated(self, y: Tensor, *extra: Tensor) -> Tensor:
        return y * upcast(self.gate_proj(extra[1])).sigmoid()
