"""RetNet's gated multi-scale retention (Sun et al. 2023, "Retentive Network: A Successor to Transformer")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from ssm_kernels import gated_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import head_norm, rms_head_norm, scaled_xavier_init, upcast
from ssm.models.mixers.rotary import rotate, rotation
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.retnet import RetNetMixer


class RetNet(Mixer, kind="retnet"):
    """Retention with a constant decay for each head, rotary keys and queries, norm by head, swish gate.

    State: "memory" S (B, H, K, V), relative to the last token: its keys are rotated by their distance to that token.
    Therefore the state needs no position, and any sequence can start from it.
    """

    def __init__(self, spec: RetNetMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.key_dim, self.value_dim = spec.state_shape(d_model)  # H, K, V
        keys, values = self.heads * self.key_dim, self.heads * self.value_dim
        self.sizes = [keys, keys, values, values]
        self.in_proj = Linear(d_model, sum(self.sizes), bias=False)  # q, k, v, gate
        self.out_proj = Linear(values, d_model, bias=False)
        if spec.norm == "rms":
            self.norm_weight = nn.Parameter(torch.ones(self.value_dim))  # shared by the heads
        for weight in self.in_proj.weight.split(self.sizes):
            scaled_xavier_init(weight)
        nn.init.xavier_uniform_(self.out_proj.weight, gain=2**-1)  # as in the authors' code

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        T = u.shape[1]
        q, k, v, gate = self._project(u)
        cos, sin = self._rotation(range(T), v)  # (T, K / 2)
        q, k = (rotate(x, cos.unsqueeze(1), sin.unsqueeze(1)) for x in (q, k))
        memory = None if state is None else self._turn(state["memory"], -1)  # its last token has position -1
        y, memory = gated_scan(q, k, v, self._log_decay(v), memory, resets=resets, chunk=self.spec.chunk)
        return self._finish(y, gate, u), {"memory": self._turn(memory, 1 - T)}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """S_t = gamma e^{i theta} S_{t-1} + k_t v_t^T, y_t = q_t^T S_t (eq. 6): only the memory is rotated."""
        q, k, v, gate = self._project(u)  # (B, H, K), (B, H, K), (B, H, V)
        memory = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
        if state is not None:
            gamma = self._log_decay(v).exp().view(-1, 1, 1)  # (H, 1, 1)
            memory = gamma * self._turn(state["memory"], -1) + memory
        y = (q.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
        return self._finish(y, gate, u), {"memory": memory}

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q / sqrt(K) and k (..., H, K), v (..., H, V), in float32; the gate (..., H V)."""
        *qkv, gate = self.in_proj(u).split(self.sizes, -1)
        q, k, v = (upcast(x).unflatten(-1, (self.heads, -1)) for x in qkv)
        return q * self.key_dim**-0.5, k, v, gate

    def _finish(self, y: Tensor, gate: Tensor, u: Tensor) -> Tensor:
        if self.spec.norm == "rms":
            y = rms_head_norm(y, self.norm_weight, self.spec.norm_eps)  # (..., H, V)
        else:
            y = head_norm(y, self.spec.norm_eps)
        y = y.flatten(-2) * F.silu(upcast(gate))
        return self.out_proj(y.to(u.dtype))

    def _log_decay(self, like: Tensor) -> Tensor:
        """log gamma_h = log(1 - 2^(-e-h)), (H,)."""
        heads = torch.arange(self.heads, device=like.device, dtype=torch.float64)
        return torch.log1p(-(2.0 ** (-self.spec.decay_exponent - heads))).to(like.dtype)

    def _rotation(self, positions: range, like: Tensor) -> tuple[Tensor, Tensor]:
        numbers = torch.arange(positions.start, positions.stop, device=like.device)
        return rotation(numbers, self.key_dim, self.spec.rotary_base, like.dtype)

    def _turn(self, memory: Tensor, by: int) -> Tensor:
        """A memory (B, H, K, V) with its keys rotated by `by` positions."""
        cos, sin = self._rotation(range(by, by + 1), memory)  # (1, K / 2)
        return rotate(memory.transpose(-1, -2), cos, sin).transpose(-1, -2)
