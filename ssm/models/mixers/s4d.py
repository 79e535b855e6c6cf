"""S4D (Gu, Gupta, Goel & Re 2022, "On the Parameterization and Initialization of Diagonal State Space Models")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer, MixerState
from ssm.models.mixers.linear_ssm import (
    discretized,
    inverse_imaginary,
    linear_imaginary,
    scan_systems,
    step_systems,
)
from ssm.models.mixers.parts import log_uniform, wide
from ssm.specs.mixers.s4d import S4dMixer


class S4d(Mixer):
    """One system of N / 2 complex states for every channel, a skip connection, GELU, and a linear map gated by another.

    State: "memory" (B, D, N / 2, 2), real and imaginary parts.
    """

    def __init__(self, spec: S4dMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        D, N = d_model, spec.d_state // 2
        imaginary = linear_imaginary(N) if spec.init == "lin" else inverse_imaginary(N)
        self.log_dt = nn.Parameter(log_uniform(D, *spec.dt_range).log())
        self.A_real_log = nn.Parameter(torch.full((D, N), 0.5).log())  # A = -exp(A_real_log) + i A_imag
        self.A_imag = nn.Parameter(imaginary.float().repeat(D, 1))  # (D, N)
        self.B = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(D, N, 1))  # (D, N, 2): real and imaginary part
        self.C = nn.Parameter(torch.randn(D, N, 2) / 2**0.5)  # complex standard normal
        self.D = nn.Parameter(torch.randn(D))
        self.out_proj = nn.Linear(D, 2 * D)

    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """a, b, c (D, N / 2) of h_t = a h_{t-1} + b x_t, y_t = Re(c^T h_t)."""
        A = torch.complex(-wide(self.A_real_log).exp(), wide(self.A_imag))
        a, b = discretized(A, wide(self.log_dt).exp().unsqueeze(-1), self.spec.discretization)
        B, C = (torch.view_as_complex(wide(weight)) for weight in (self.B, self.C))
        return a, b * B, 2 * C  # 2: the conjugates' share

    def forward(
        self, u: Tensor, state: MixerState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, MixerState]:
        h0 = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N / 2)
        y, h = scan_systems(wide(u).unsqueeze(-1), *self.system(), h0, resets, self.spec.segment)  # (B, T, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def step(self, u: Tensor, state: MixerState | None = None) -> tuple[Tensor, MixerState]:
        """h_t = a h_{t-1} + b x_t and y_t = 2 Re(C^T h_t) + D x_t (Section 3)."""
        h = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N / 2)
        y, h = step_systems(wide(u).unsqueeze(-1), *self.system(), h)  # (B, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        return F.glu(self.out_proj(F.gelu(y + self.D * u).to(u.dtype)))
