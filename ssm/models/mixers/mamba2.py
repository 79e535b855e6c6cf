"""Mamba-2 (Dao & Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through SSD")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, gated_rms_norm, gated_scan
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer
from ssm.models.mixers.mimetic import apply_mimetic, negative_a
from ssm.specs.mixers.mamba2 import Mamba2Mixer

SMALLEST_DT = 1e-4  # floor of dt at initialization, as in the authors' code


class Mamba2(Mixer):
    """The sequential block of the paper's figure 6: one projection, a short convolution, SSD, gated norm, projection.

    State: "memory" S (B, H, N, P) and "conv", the convolution's last K - 1 inputs (B, K - 1, E D + 2 G N).
    """

    def __init__(self, spec: Mamba2Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.d_inner = spec.expand * d_model  # E D
        self.heads = self.d_inner // spec.head_dim  # H
        self.d_bc = spec.n_groups * spec.d_state  # G N
        d_conv = self.d_inner + 2 * self.d_bc
        self.in_proj = nn.Linear(d_model, self.d_inner + d_conv + self.heads, bias=False)  # z, x, B, C, dt
        self.conv_weight = nn.Parameter(torch.empty(d_conv, spec.d_conv))  # (E D + 2 G N, K)
        self.conv_bias = nn.Parameter(torch.zeros(d_conv))
        self.dt_bias = nn.Parameter(torch.empty(self.heads))
        self.A_log = nn.Parameter(torch.empty(self.heads))  # A = -exp(A_log), or the mimetic form
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm_weight = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)
        self._initialize(n_layers)

    def _initialize(self, n_layers: int) -> None:
        """The authors': A uniform, dt log-uniform, the output projection over sqrt(L), then the mimetic parts."""
        nn.init.uniform_(self.conv_weight, -1 / math.sqrt(self.spec.d_conv), 1 / math.sqrt(self.spec.d_conv))
        low, high = (math.log(value) for value in self.spec.dt_range)
        dt = torch.empty(self.heads).uniform_(low, high).exp().clamp_min(SMALLEST_DT)  # (H,)
        a = torch.empty(self.heads).uniform_(*self.spec.a_range)  # (H,)
        with torch.no_grad():
            self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
            self.A_log.copy_(a.log())
            self.out_proj.weight.div_(math.sqrt(n_layers))
        _, _, B, C, dt = self.in_proj.weight.detach().split(
            [self.d_inner, self.d_inner, self.d_bc, self.d_bc, self.heads]
        )  # z, x, B, C, dt
        apply_mimetic(
            self.spec.mimetic,
            dt_weight=dt,
            dt_bias=self.dt_bias,
            B_weight=B,
            C_weight=C,
            conv_weight=self.conv_weight,
            conv_bias=self.conv_bias,
        )

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
        log_decay = dt * -negative_a(_wide(self.A_log), spec.mimetic)  # (B, T, H): dt A
        v = x * dt.unsqueeze(-1)  # (B, T, H, P)
        y, memory = gated_scan(C, B, v, log_decay, memory, resets=resets, chunk=spec.chunk)  # (B, T, H, P)
        y = torch.addcmul(y, x, self.D.unsqueeze(-1).to(y.dtype))
        y = gated_rms_norm(y.reshape(B_, T, self.d_inner), self.norm_weight, z, groups=spec.n_groups)
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": conv_state}

    def step(self, u: Tensor, state: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """One token: S_t = exp(dt A) S_{t-1} + dt B x^T, y = C^T S_t + D x (Section 6, recurrent form)."""
        spec, B_ = self.spec, u.shape[0]
        z, xBC, dt = self.in_proj(u).split([self.d_inner, self.d_inner + 2 * self.d_bc, self.heads], -1)
        past = xBC.new_zeros(B_, spec.d_conv - 1, xBC.shape[1]) if state is None else state["conv"].to(xBC.dtype)
        inputs = torch.cat([past, xBC.unsqueeze(1)], 1)  # (B, K, E D + 2 G N)
        xBC = F.silu((inputs * self.conv_weight.T).sum(1) + self.conv_bias)  # (B, E D + 2 G N)
        x, B, C = xBC.split([self.d_inner, self.d_bc, self.d_bc], -1)
        x = _wide(x).view(B_, self.heads, spec.head_dim)  # (B, H, P)
        shared = self.heads // spec.n_groups  # heads that read one group
        B = _wide(B).view(B_, spec.n_groups, spec.d_state).repeat_interleave(shared, 1)  # (B, H, N)
        C = _wide(C).view(B_, spec.n_groups, spec.d_state).repeat_interleave(shared, 1)  # (B, H, N)

        dt = F.softplus(_wide(dt) + self.dt_bias).clamp(*spec.dt_limit)  # (B, H)
        A = -negative_a(_wide(self.A_log), spec.mimetic)  # (H,)
        memory = (dt.unsqueeze(-1) * B).unsqueeze(-1) * x.unsqueeze(-2)  # (B, H, N, P)
        if state is not None:
            memory = (dt * A).exp()[..., None, None] * state["memory"] + memory
        y = (C.unsqueeze(-1) * memory).sum(-2) + self.D.unsqueeze(-1) * x  # (B, H, P)

        y = self._norm(y.flatten(1) * F.silu(z))
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": inputs[:, 1:]}

    def _norm(self, y: Tensor) -> Tensor:
        """RMSNorm over each group's channels, after the gate: y (B, E D)."""
        groups = self.spec.n_groups
        grouped = _wide(y).unflatten(-1, (groups, self.d_inner // groups))  # (B, G, E D / G)
        return F.rms_norm(grouped, (self.d_inner // groups,), eps=1e-5).flatten(-2) * self.norm_weight


def _wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
