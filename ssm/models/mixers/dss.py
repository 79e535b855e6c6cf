"""DSS (Gupta, Gu & Berant 2022, "Diagonal State Spaces are as Effective as Structured State Spaces")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer, MixerState
from ssm.models.mixers.linear_ssm import discretized, hippo_normal, scan_systems, step_systems
from ssm.models.mixers.parts import log_uniform, wide
from ssm.specs.mixers.dss import DssMixer


class Dss(Mixer, kind="dss"):
    """DSS-exp: N eigenvalues for all channels, a step size and readouts for each; a skip, GELU, a linear map.

    State: "memory" (B, D, N, 2), real and imaginary parts.
    """

    def __init__(self, spec: DssMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        D, N = d_model, spec.d_state
        A = hippo_normal(2 * N)[0]  # (N,)
        self.log_dt = nn.Parameter(log_uniform(D, *spec.dt_range).log())
        self.A_real_log = nn.Parameter((-A.real).log())  # A = -exp(A_real_log) + i A_imag
        self.A_imag = nn.Parameter(A.imag.clone())
        self.W = nn.Parameter(torch.randn(D, N, 2))  # real and imaginary part, each standard normal
        self.D = nn.Parameter(torch.randn(D))
        self.out_proj = nn.Linear(D, D)

    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """a, b, c (D, N) of h_t = a h_{t-1} + b x_t, y_t = Re(c^T h_t)."""
        A = torch.complex(-wide(self.A_real_log).exp(), wide(self.A_imag))
        a, b = discretized(A, wide(self.log_dt).exp().unsqueeze(-1), "zoh")
        return a, b, torch.view_as_complex(wide(self.W))

    def forward(
        self, u: Tensor, state: MixerState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, MixerState]:
        h0 = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N)
        y, h = scan_systems(wide(u).unsqueeze(-1), *self.system(), h0, resets, self.spec.segment)  # (B, T, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def step(self, u: Tensor, state: MixerState | None = None) -> tuple[Tensor, MixerState]:
        """h_t = a h_{t-1} + b x_t and y_t = Re(w^T h_t) + D x_t (Section 3.2, recurrent view)."""
        h = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N)
        y, h = step_systems(wide(u).unsqueeze(-1), *self.system(), h)  # (B, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        return self.out_proj(F.gelu(y + self.D * u).to(u.dtype))
