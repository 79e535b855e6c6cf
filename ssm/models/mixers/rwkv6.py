"""RWKV-6's time mixing (Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import gated_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import head_norm, shifted, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.rwkv6 import Rwkv6Mixer

NAMES = ("decay", "key", "value", "receptance", "gate")  # w, k, v, r, g: inputs with a token shift


class Rwkv6(Mixer, kind="rwkv6"):
    """Finch (Section 4.2): data-dependent token shift, data-dependent decay, bonus, group norm, gate.

    State: "memory" S (B, H, K, K) and "shift", the last token's input (B, D).
    """

    def __init__(self, spec: Rwkv6Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.head_dim, _ = spec.state_shape(d_model)  # H, K
        D, M, R, N = d_model, len(NAMES), spec.shift_rank, spec.decay_rank
        self.shift_mix = nn.Parameter(torch.empty(D))  # mu_x
        self.shift_base = nn.Parameter(torch.empty(M, D))  # lambda of the five low-rank maps
        self.shift_down = nn.Parameter(torch.zeros(D, M * R))  # their A
        self.shift_up = nn.Parameter(torch.empty(M, R, D).uniform_(-0.01, 0.01))  # their B
        self.decay_base = nn.Parameter(torch.empty(D))  # lambda_w
        self.decay_down = nn.Parameter(torch.zeros(D, N))
        self.decay_up = nn.Parameter(torch.empty(N, D).uniform_(-0.01, 0.01))
        self.bonus = nn.Parameter(torch.empty(self.heads, self.head_dim))  # u
        self.receptance = Linear(D, D, bias=False)
        self.key = Linear(D, D, bias=False)
        self.value = Linear(D, D, bias=False)
        self.gate = Linear(D, D, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(D))
        self.norm_bias = nn.Parameter(torch.zeros(D))
        self.out_proj = Linear(D, D, bias=False)
        for linear, gain in ((self.receptance, 1.0), (self.value, 1.0), (self.key, 0.1), (self.gate, 0.1)):
            nn.init.orthogonal_(linear.weight, gain=gain)
        nn.init.zeros_(self.out_proj.weight)

    def initialize_at(self, layer: int) -> None:
        """The authors' initialization: in later layers decays vary more, and the token before has less weight."""
        depth = layer / max(self.n_layers - 1, 1)  # 0 to 1
        rest = 1 - layer / self.n_layers  # 1 to almost 0
        channel = torch.arange(self.d_model, device=self.bonus.device)
        ramp = (channel / self.d_model) ** rest  # (D,)
        ramps = (ramp, ramp, ramp + 0.3 * depth, (channel / self.d_model) ** (0.5 * rest))  # w, k, v, then r and g
        place = channel / max(self.d_model - 1, 1)  # 0 to 1
        zigzag = 0.1 * ((channel + 1) % 3 - 1)
        slowest, fastest = map(math.log, self.spec.decay_range) if self.spec.decay_range else (-6.0, -1.0)
        with torch.no_grad():
            self.shift_mix.copy_(1 - ramp)
            self.shift_base.copy_(1 - torch.stack([*ramps, ramps[-1]]))
            self.decay_base.copy_(slowest + (fastest - slowest) * place ** (0.7 + 1.3 * depth))
            self.bonus.copy_((depth * (1 - place) + zigzag).view_as(self.bonus))

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        memory, last = (None, None) if state is None else (state["memory"], state["shift"])
        before, last = shifted(u, last, resets)
        r, k, v, log_decay, gate = self._project(u, before)
        y, memory = gated_scan(
            r, k, v, log_decay, memory, bonus=self.bonus, resets=resets, chunk=self.spec.chunk
        )  # (B, T, H, K)
        return self._finish(y, gate, u), {"memory": memory, "shift": last}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """y_t = r_t^T (S_{t-1} + diag(u) k_t v_t^T), then S_t = diag(w_t) S_{t-1} + k_t v_t^T (eq. 19)."""
        before = torch.zeros_like(u) if state is None else state["shift"].to(u.dtype)
        r, k, v, log_decay, gate = self._project(u, before)  # (B, H, K)
        added = upcast(k).unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, K)
        memory = torch.zeros_like(added) if state is None else state["memory"]
        y = (r.unsqueeze(-1) * (memory + self.bonus.unsqueeze(-1) * added)).sum(-2)  # (B, H, K)
        memory = log_decay.exp().unsqueeze(-1) * memory + added
        return self._finish(y, gate, u), {"memory": memory, "shift": u}

    def _project(self, u: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """r, k, v and log w (..., H, K), the gate (..., D), from tokens u and the tokens before them (..., D)."""
        apart = before - u
        low = torch.tanh((u + apart * self.shift_mix) @ self.shift_down)  # (..., 5 R)
        low = low.unflatten(-1, (len(NAMES), self.spec.shift_rank))  # (..., 5, R)
        amount = self.shift_base + torch.einsum("...mr,mrd->...md", low, self.shift_up)  # (..., 5, D)
        mixed = u.unsqueeze(-2) + apart.unsqueeze(-2) * amount  # (..., 5, D): ddlerp (eq. 14)
        w, k, v, r, g = mixed.unbind(-2)
        speed = self.decay_base + upcast(torch.tanh(w @ self.decay_down) @ self.decay_up)  # (..., D)
        projected = (self.receptance(r), self.key(k), self.value(v), -upcast(speed).exp())  # log w = -exp(speed)
        r, k, v, log_decay = (x.unflatten(-1, (self.heads, self.head_dim)) for x in projected)
        return r, k, v, log_decay, self.gate(g)

    def _finish(self, y: Tensor, gate: Tensor, u: Tensor) -> Tensor:
        y = head_norm(y, self.spec.norm_eps).flatten(-2) * self.norm_weight + self.norm_bias  # (..., D)
        return self.out_proj((y * F.silu(upcast(gate))).to(u.dtype))
