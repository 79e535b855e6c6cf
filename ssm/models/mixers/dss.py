"""DSS (Gupta, Gu & Berant 2022, "Diagonal State Spaces are as Effective as Structured State Spaces")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.linear_ssm import ChannelSystems, discretized, hippo_normal
from ssm.models.mixers.parts import log_uniform, upcast
from ssm.specs.mixers.dss import DssMixer


class Dss(ChannelSystems, kind="dss"):
    """DSS-exp: N eigenvalues for all channels; for each channel a step size and readouts (Section 3.2).

    Then a skip connection, GELU and a linear map.

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
        self.out_proj = Linear(D, D)

    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        A = torch.complex(-upcast(self.A_real_log).exp(), upcast(self.A_imag))
        a, b = discretized(A, upcast(self.log_dt).exp().unsqueeze(-1), "zoh")
        return a, b, torch.view_as_complex(upcast(self.W))

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        return self.out_proj(F.gelu(y + self.D * u).to(u.dtype))
