"""Mamba-2 (Dao & Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through SSD")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, gated_scan
from torch import Tensor, nn

from ssm.specs.model import Mamba2Mixer

SMALLEST_DT = 1e-4  # floor of dt at initialization, as in the authors' code


class Mamba2(nn.Module):
    """The sequential block of the paper's figure 6: one projection, a short convolution, SSD, gated norm, projection.

    State: "memory" S (B, H, N, P) and "conv", the convolution's last K - 1 inputs (B, K - 1, E D + 2 G N).
    """

    def __init__(self, spec: Mamba2Mixer, d_model: int, n_layers: int):
        super().__init__()
        self.spec = spec
        self.d_inner = spec.expand * d_model  # E D
        self.heads = self.d_inner // spec.head_dim  # H
        self.d_bc = spec.n_groups * spec.d_state  # G N
        d_conv = self.d_inner + 2 * self.d_bc
        self.in_proj = nn.Linear(d_model, self.d_inner + d_conv + self.heads, bias=False)  # z, x, B, C, dt
        self.conv_weight = nn.Parameter(torch.empty(d_conv, spec.d_conv))  # (E D + 2 G N, K)
        self.conv_bias = nn.Parameter(torch.zeros(d_conv))
        self.dt_bias = nn.Parameter(torch.empty(self.heads))
        self.A_log = nn.Parameter(torch.empty(self.heads))  # A = -exp(A_log)
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm_weight = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)
        self._initialize(n_layers)

    def _initialize(self, n_layers: int) -> None:
        """The authors' initialization: A uniform, dt log-uniform, the output projection scaled by 1 / sqrt(L)."""
        nn.init.uniform_(self.conv_weight, -1 / math.sqrt(self.spec.d_conv), 1 / math.sqrt(self.spec.d_conv))
        low, high = (math.log(value) for value in self.spec.dt_range)
        dt = torch.empty(self.heads).uniform_(low, high).exp().clamp_min(SMALLEST_DT)  # (H,)
        a = torch.empty(self.heads).uniform_(*self.spec.a_range)  # (H,)
        with torch.no_grad():
            self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
            self.A_log.copy_(a.log())
            self.out_proj.weight.div_(math.sqrt(n_layers))

    def forward(
        self, u: Tensor, state: dict[str, Tensor] | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """u (B, T, D), the state it starts from, resets (B, T) bool -> y (B, T, D) and the state it ends in."""
        spec, (B_, T, _) = self.spec, u.shape
        conv_state, memory = (None, None) if state is None else (state["conv"], state["memory"])
        z, xBC, dt = self.in_proj(u).split([self.d_inner, self.d_inner + 2 * self.d_bc, self.heads], -1)
        xBC, conv_state = causal_conv1d(
            xBC, self.conv_weight, self.conv_bias, conv_state, resets=resets, activation="silu"
        )
        x, B, C = xBC.split([self.d_inner, self.d_bc, self.d_bc], -1)
        x = x.reshape(B_, T, self.heads, spec.head_dim)  # (B, T, H, P)
        B = B.reshape(B_, T, spec.n_groups, spec.d_state)  # (B, T, G, N)
        C = C.reshape(B_, T, spec.n_groups, spec.d_state)  # (B, T, G, N)

        dt = F.softplus(_wide(dt) + self.dt_bias)  # (B, T, H), in float32 under autocast too
        if spec.dt_limit != (0.0, None):
            dt = dt.clamp(*spec.dt_limit)
        log_decay = dt * -_wide(self.A_log).exp()  # (B, T, H): dt A
        if resets is not None:
            log_decay = log_decay.masked_fill(resets.unsqueeze(-1), float("-inf"))
        y, memory = gated_scan(C, B, x * dt.unsqueeze(-1), log_decay, memory, chunk=spec.chunk)  # (B, T, H, P)
        y = torch.addcmul(y, x, self.D.unsqueeze(-1).to(y.dtype))

        y = y.reshape(B_, T, self.d_inner) * F.silu(z)
        y = self._norm(y)
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": conv_state}

    def _norm(self, y: Tensor) -> Tensor:
        """RMSNorm over each group's channels, after the gate."""
        groups = self.spec.n_groups
        if groups == 1:
            return F.rms_norm(_wide(y), (self.d_inner,), self.norm_weight, eps=1e-5)
        grouped = _wide(y).unflatten(-1, (groups, self.d_inner // groups))  # (B, T, G, E D / G)
        return F.rms_norm(grouped, (self.d_inner // groups,), eps=1e-5).flatten(-2) * self.norm_weight


def _wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
