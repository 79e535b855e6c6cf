"""Mamba-2 (Dao & Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through SSD")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, gated_rms_norm, gated_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.mixers.mimetic import apply_mimetic, negative_a
from ssm.models.mixers.parts import conv_init, conv_step, initial_step_bias, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.mamba2 import Mamba2Mixer


class Mamba2(Mixer, kind="mamba2"):
    """The parallel block of the paper's Figure 6: projection, short convolution, SSD, gated norm, projection.

    State: "memory" S (B, H, N, P) and "conv", the convolution's last K - 1 inputs (B, K - 1, E D + 2 G N).
    """

    def __init__(self, spec: Mamba2Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.d_inner = spec.expand * d_model  # E D
        self.heads = spec.heads(d_model)  # H
        self.d_bc = spec.n_groups * spec.d_state  # G N
        convolved = spec.convolved(d_model)  # E D + 2 G N
        self.sizes = [self.d_inner, convolved, spec.dt_inputs(d_model)]
        self.in_proj = Linear(d_model, sum(self.sizes), bias=False)  # z, x, B, C, dt
        self.conv_weight = nn.Parameter(torch.empty(convolved, spec.d_conv))  # (E D + 2 G N, K)
        self.conv_bias = nn.Parameter(torch.zeros(convolved))
        self.dt_bias = nn.Parameter(torch.empty(self.heads))
        self.A_log = nn.Parameter(torch.empty(self.heads))  # A = -exp(A_log), or the mimetic form
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm_weight = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = Linear(self.d_inner, d_model, bias=False)
        self._initialize()

    def _initialize(self) -> None:
        """The authors' initialization, then the mimetic parts that the spec selects.

        A is uniform, dt log-uniform, and the output projection is divided by sqrt(L). The bias of the
        convolution is zero if the spec says so.
        """
        conv_init(self.conv_weight, self.conv_bias if self.spec.conv_bias == "uniform" else None)
        dt_bias = initial_step_bias(self.heads, *self.spec.dt_range)
        a = torch.empty(self.heads).uniform_(*self.spec.a_range)  # (H,)
        if (slow := self.spec.slow_heads) is not None:
            count = max(1, round(slow.share * self.heads))
            dt_bias[:count] = initial_step_bias(count, *slow.dt_range)
            a[:count] = torch.empty(count).uniform_(*slow.a_range)
        with torch.no_grad():
            self.dt_bias.copy_(dt_bias)
            self.A_log.copy_(a.log())
            self.out_proj.weight.div_(math.sqrt(self.n_layers))
        B, C = self.bc_weights
        apply_mimetic(
            self.spec.mimetic,
            dt_weight=self.in_proj.weight.detach().split(self.sizes)[-1],
            dt_bias=self.dt_bias,
            B_weight=B,
            C_weight=C,
            conv_weight=self.conv_weight,
            conv_bias=self.conv_bias,
        )

    @property
    def bc_weights(self) -> tuple[Tensor, Tensor]:
        """Both (G N, D)."""
        B, C = self.in_proj.weight.detach().split(self.sizes)[1][self.d_inner :].chunk(2)
        return B, C

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        z, x, B, C, dt, conv = self.project(u, state, resets)
        memory = None if state is None else state["memory"]
        log_decay = dt * self.continuous_decay()  # (B, T, H): dt A
        v = x * dt.unsqueeze(-1)  # (B, T, H, P)
        y, memory = gated_scan(C, B, v, log_decay, memory, resets=resets, chunk=self.spec.chunk)  # (B, T, H, P)
        y = torch.addcmul(y, x, self.D.unsqueeze(-1).to(y.dtype))
        y = gated_rms_norm(y.flatten(2), self.norm_weight, z, groups=self.spec.n_groups)
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": conv}

    def project(
        self, u: Tensor, state: LayerState | None, resets: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The inputs of the recurrence, from inputs u (B, T, D) of the layer.

        Returns:
            z (B, T, E D), x (B, T, H, P), B and C (B, T, G, N), dt (B, T, H), and "conv" of the next state.
        """
        z, xBC, dt = self.in_proj(u).split(self.sizes, -1)
        conv = None if state is None else state["conv"]
        xBC, conv = causal_conv1d(xBC, self.conv_weight, self.conv_bias, conv, resets=resets, activation="silu")
        x, B, C = xBC.split([self.d_inner, self.d_bc, self.d_bc], -1)
        x = x.unflatten(-1, (self.heads, -1))  # (B, T, H, P)
        B, C = (part.unflatten(-1, (self.spec.n_groups, -1)) for part in (B, C))  # (B, T, G, N)
        return z, x, B, C, self._steps(dt), conv

    def coefficients(self, u: Tensor) -> Coefficients:
        """A_t = exp(dt_t A), b_t = dt_t B_t x_t^T. The scan gets dt_t x_t, but mi's map uses dt_t B_t (eq. 5 and 8)."""
        _, x, B, C, dt, _ = self.project(u, None, None)
        shared = self.heads // self.spec.n_groups  # heads that read one group
        B, C = (upcast(part).repeat_interleave(shared, 2) for part in (B, C))  # (B, T, H, N)
        dt = dt.unsqueeze(-1)  # (B, T, H, 1)
        A = (dt * self.continuous_decay().unsqueeze(-1)).exp()
        return Coefficients(A.expand_as(B), dt * B, upcast(x), C, bare_key=B)

    def continuous_decay(self) -> Tensor:
        """A (H,), negative."""
        return -negative_a(upcast(self.A_log), self.spec.mimetic)

    def _steps(self, dt: Tensor) -> Tensor:
        """The step sizes (..., H), in float32 also under autocast, from their part of the projection."""
        dt = upcast(dt)
        dt = F.softplus(dt + self.dt_bias if self.sizes[-1] else self.dt_bias.expand(*dt.shape[:-1], -1))
        return dt if self.spec.dt_limit == (0.0, None) else dt.clamp(*self.spec.dt_limit)

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """One token: S_t = exp(dt A) S_{t-1} + dt B x^T, y = C^T S_t + D x (scalar A, Section 5.1)."""
        z, xBC, dt = self.in_proj(u).split(self.sizes, -1)
        xBC, conv = conv_step(xBC, self.conv_weight, self.conv_bias, None if state is None else state["conv"])
        x, B, C = F.silu(xBC).split([self.d_inner, self.d_bc, self.d_bc], -1)
        x = x.unflatten(-1, (self.heads, -1))  # (B, H, P)
        shared = self.heads // self.spec.n_groups  # heads that read one group
        B, C = (part.unflatten(-1, (self.spec.n_groups, -1)).repeat_interleave(shared, 1) for part in (B, C))

        dt = self._steps(dt)  # (B, H)
        memory = (dt.unsqueeze(-1) * B).unsqueeze(-1) * x.unsqueeze(-2)  # (B, H, N, P)
        if state is not None:
            memory = (dt * self.continuous_decay()).exp()[..., None, None] * state["memory"] + memory
        y = (C.unsqueeze(-1) * memory).sum(-2) + self.D.unsqueeze(-1) * x  # (B, H, P)

        y = self._norm(y.flatten(1) * F.silu(z))
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": conv}

    def _norm(self, y: Tensor) -> Tensor:
        """RMSNorm over each group's channels, after the gate: y (B, E D)."""
        groups = self.spec.n_groups
        grouped = y.unflatten(-1, (groups, self.d_inner // groups))  # (B, G, E D / G)
        return F.rms_norm(grouped, (self.d_inner // groups,), eps=1e-5).flatten(-2) * self.norm_weight
