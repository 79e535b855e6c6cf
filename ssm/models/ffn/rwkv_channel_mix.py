"""Channel mixing of RWKV-4, RWKV-6 and RWKV-7 (Peng et al. 2023, Section 3.1). RWKV-7 has no receptance."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ssm.models.ffn.base import Ffn
from ssm.models.linear import Linear
from ssm.models.mixers.parts import shifted
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix


class RwkvChannelMixFfn(Ffn, kind="rwkv_channel_mix"):
    """sigmoid(W_r x_r) * W_v relu(W_k x_k)^2, or W_v relu(W_k x_k)^2 without receptance.

    x_r and x_k interpolate between a token and the token before it. In RWKV-6 and RWKV-7 they are
    x_t + mix * (x_{t-1} - x_t); in RWKV-4 they are x_{t-1} + mix * (x_t - x_{t-1}).

    State: "shift", the last token's input (B, D).
    """

    def __init__(self, spec: RwkvChannelMix, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.key_mix = nn.Parameter(torch.empty(d_model))
        self.key = Linear(d_model, spec.d_hidden, bias=False)
        if spec.receptance:
            self.receptance_mix = nn.Parameter(torch.empty(d_model))
            self.receptance = Linear(d_model, d_model, bias=False)
            nn.init.zeros_(self.receptance.weight)
        self.value = Linear(spec.d_hidden, d_model, bias=False)
        nn.init.orthogonal_(self.key.weight, gain=math.sqrt(max(1.0, spec.d_hidden / d_model)))
        nn.init.zeros_(self.value.weight)

    def initialize_at(self, layer: int) -> None:
        """The authors' initialization: in later layers the token before has less weight."""
        channel = torch.arange(self.d_model, device=self.key_mix.device)
        rest = 1 - layer / self.n_layers
        mix = (channel / self.d_model) ** (rest if self.spec.receptance else rest**4)
        mix = mix if self.spec.mix == "present" else 1 - mix
        with torch.no_grad():
            self.key_mix.copy_(mix)
            if self.spec.receptance:
                self.receptance_mix.copy_(mix)

    def forward(self, x: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        before, last = shifted(x, None if state is None else state["shift"], resets)
        return self._mix(x, before), {"shift": last}

    def step(self, x: Tensor, state: LayerState | None = None) -> LayerOutput:
        before = torch.zeros_like(x) if state is None else state["shift"].to(x.dtype)
        return self._mix(x, before), {"shift": x}

    def _mix(self, x: Tensor, before: Tensor) -> Tensor:
        base, other = (before, x) if self.spec.mix == "present" else (x, before)
        difference = other - base
        value = self.value(self.key(base + difference * self.key_mix).relu().square())
        if not self.spec.receptance:
            return value
        return torch.sigmoid(self.receptance(base + difference * self.receptance_mix)) * value
