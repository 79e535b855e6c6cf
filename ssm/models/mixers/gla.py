"""GLA (Yang et al. 2023, "Gated Linear Attention Transformers with Hardware-Efficient Training")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from ssm_kernels import gated_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import rms_head_norm, scaled_xavier_init, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.gla import GlaMixer


class Gla(Mixer, kind="gla"):
    """Linear attention with the decay alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16) of keys (Section 4.4).

    Then an RMSNorm by head and a swish gate.

    State: "memory" S (B, H, K, V).
    """

    def __init__(self, spec: GlaMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.key_dim, self.value_dim = spec.state_shape(d_model)  # H, K, V
        keys, values = self.heads * self.key_dim, self.heads * self.value_dim
        self.sizes = [keys, keys, values, values, spec.rank]
        self.in_proj = Linear(d_model, sum(self.sizes), bias=False)  # q, k, v, gate, W_1
        if spec.decay == "input_dependent":
            self.decay_proj = Linear(spec.gate_rank, keys)  # W_2 and b
        else:
            self.decay_bias = nn.Parameter(torch.zeros(keys))  # b
        self.norm_weight = nn.Parameter(torch.ones(self.value_dim))  # shared by the heads
        self.out_proj = Linear(values, d_model, bias=False)
        decay = [self.decay_proj.weight] if spec.decay == "input_dependent" else []
        for weight in (*self.in_proj.weight.split(self.sizes), *decay, self.out_proj.weight):
            scaled_xavier_init(weight)
        if spec.decay == "input_dependent":
            nn.init.zeros_(self.decay_proj.bias)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        memory = None if state is None else state["memory"]
        q, k, v, log_decay, gate = self._project(u)
        y, memory = gated_scan(q, k, v, log_decay, memory, resets=resets, chunk=self.spec.chunk)  # (B, T, H, V)
        return self._finish(y, gate, u), {"memory": memory}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """S_t = diag(alpha_t) S_{t-1} + k_t v_t^T, y_t = q_t^T S_t (eq. 3)."""
        q, k, v, log_decay, gate = self._project(u)  # (B, H, K), (B, H, K), (B, H, V), (B, H, K)
        memory = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
        if state is not None:
            memory = log_decay.exp().unsqueeze(-1) * state["memory"] + memory
        y = (q.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
        return self._finish(y, gate, u), {"memory": memory}

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q / sqrt(K), k and log alpha (..., H, K), v (..., H, V), the gate (..., H V)."""
        q, k, v, gate, low = self.in_proj(u).split(self.sizes, -1)
        if self.spec.decay == "input_dependent":
            b = upcast(self.decay_proj(low))  # in float32 also under autocast
        else:
            b = upcast(self.decay_bias).expand(*u.shape[:-1], -1)
        log_decay = F.logsigmoid(b) / self.spec.gate_divisor
        q, k, v, log_decay = (x.unflatten(-1, (self.heads, -1)) for x in (q, k, v, log_decay))
        return q * self.key_dim**-0.5, k, v, log_decay, gate

    def _finish(self, y: Tensor, gate: Tensor, u: Tensor) -> Tensor:
        y = rms_head_norm(y, self.norm_weight, self.spec.norm_eps)  # (..., H, V)
        return self.out_proj((y.flatten(-2) * F.silu(upcast(gate))).to(u.dtype))
