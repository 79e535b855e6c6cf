"""Mamba-1 (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, selective_scan
from ssm_kernels.selective_scan.pytorch import SMALLEST_A, SMALLEST_DELTA
from torch import Tensor, nn

from ssm.models.linear import Linear, linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.mimetic import apply_mimetic, negative_a
from ssm.models.mixers.parts import conv_init, conv_step, initial_step_bias, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.mamba1 import Mamba1Mixer


class Mamba1(Mixer, kind="mamba1"):
    """The block of the paper's Figure 3: projection to x and z, short convolution, selective SSM, gate z.

    With `polarize`, the first state of each channel has a decay of exactly 1 (A = 0), or the last state a decay of
    exactly 0 (A = -inf), or both. (Wang et al. 2025, Section 6 and Appendix E.5)

    With `selection_norm_eps`, the inputs of dt, B and C are normalized, without weights (Falcon Mamba).

    State: "memory" h (B, E D, N) and "conv", the convolution's last K - 1 inputs (B, K - 1, E D).
    """

    def __init__(self, spec: Mamba1Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.d_inner = spec.expand * d_model  # E D
        self.widths = [spec.rank(d_model), spec.states, spec.states]  # R, N, N
        self.in_proj = Linear(d_model, 2 * self.d_inner, bias=False)  # x, z
        self.conv_weight = nn.Parameter(torch.empty(self.d_inner, spec.d_conv))  # (E D, K)
        self.conv_bias = nn.Parameter(torch.empty(self.d_inner))
        self.x_proj = Linear(self.d_inner, sum(self.widths), bias=False)  # dt, B, C
        self.dt_proj = Linear(self.widths[0], self.d_inner)
        self.A_log = nn.Parameter(torch.empty(self.d_inner, spec.learned_states))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = Linear(self.d_inner, d_model, bias=False)
        self._initialize()

    def _initialize(self) -> None:
        """The authors' initialization, then the mimetic parts that the spec selects."""
        spec, rank = self.spec, self.widths[0]
        conv_init(self.conv_weight, self.conv_bias)
        nn.init.uniform_(self.dt_proj.weight, -1 / math.sqrt(rank), 1 / math.sqrt(rank))
        dt_bias = initial_step_bias(self.d_inner, *spec.dt_range)
        low, high = spec.a_range or (1.0, spec.d_state)
        a = torch.linspace(low, high, spec.d_state)  # (d_state,)
        if spec.polarized_size == "matched":  # polarized states replace the first and the last
            a = a[int(spec.polarize in ("one", "both")) :][: spec.learned_states]
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt_bias)
            self.A_log.copy_(a.log())
            self.out_proj.weight.div_(math.sqrt(self.n_layers))
        B, C = self.bc_weights
        apply_mimetic(
            spec.mimetic,
            dt_weight=self.dt_proj.weight,
            dt_bias=self.dt_proj.bias,
            B_weight=B,
            C_weight=C,
            conv_weight=self.conv_weight,
            conv_bias=self.conv_bias,
        )

    @property
    def bc_weights(self) -> tuple[Tensor, Tensor]:
        """Both (N, E D)."""
        _, B, C = self.x_proj.weight.detach().split(self.widths)
        return B, C

    def continuous_decay(self) -> Tensor:
        """A (E D, N): -exp(A_log), with 0 and -inf for polarized states."""
        A = -negative_a(upcast(self.A_log), self.spec.mimetic)
        if self.spec.polarize in ("one", "both"):
            A = F.pad(A, (1, 0), value=0.0)
        return F.pad(A, (0, 1), value=-math.inf) if self.spec.polarize in ("zero", "both") else A

    def _selection(self, x: Tensor) -> tuple[Tensor, ...]:
        """dt before its linear map (..., R), B and C (..., N), from x (..., E D)."""
        parts, eps = self.x_proj(x).split(self.widths, -1), self.spec.selection_norm_eps
        if eps is None:
            return parts
        return tuple(F.rms_norm(upcast(part), part.shape[-1:], eps=eps).to(part.dtype) for part in parts)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        conv, memory = (None, None) if state is None else (state["conv"], state["memory"])
        x, z = self.in_proj(u).chunk(2, -1)  # (B, T, E D)
        x, conv = causal_conv1d(x, self.conv_weight, self.conv_bias, conv, resets=resets, activation="silu")
        dt, B, C = self._selection(x)
        dt = linear(dt, self.dt_proj.weight)  # (B, T, E D); its bias is added in the scan
        y, memory = selective_scan(
            x, dt, self.continuous_decay(), B, C, self.D, self.dt_proj.bias, z, memory, dt_softplus=True, resets=resets
        )
        return self.out_proj(y.to(u.dtype)), {"memory": memory, "conv": conv}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t and y_t = C_t^T h_t + D x_t (eq. 2, Algorithm 2)."""
        x, z = self.in_proj(u).chunk(2, -1)  # (B, E D)
        x, conv = conv_step(x, self.conv_weight, self.conv_bias, None if state is None else state["conv"])
        x = F.silu(x)  # (B, E D)
        dt, B, C = self._selection(x.to(u.dtype))
        B, C = upcast(B), upcast(C)  # (B, N)
        # The bias is added in float32: in bfloat16 a small step size has an error of about 1%.
        dt = F.softplus(upcast(linear(dt, self.dt_proj.weight)) + self.dt_proj.bias).unsqueeze(-1)  # (B, E D, 1)
        h = dt * B.unsqueeze(1) * x.unsqueeze(-1)  # (B, E D, N)
        if state is not None:
            # Without the limits, dt = 0 and a polarized A = -inf would give 0 * -inf.
            decay = (dt.clamp_min(SMALLEST_DELTA) * self.continuous_decay().clamp_min(SMALLEST_A)).exp()
            h = decay * state["memory"] + h
        y = (h * C.unsqueeze(1)).sum(-1) + self.D * x  # (B, E D)
        y = y * F.silu(upcast(z))
        return self.out_proj(y.to(u.dtype)), {"memory": h, "conv": conv}
