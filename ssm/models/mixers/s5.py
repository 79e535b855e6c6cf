"""S5 (Smith, Warrington & Linderman 2023, "Simplified State Space Layers for Sequence Modeling")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import diagonal_scan
from torch import Tensor, nn

from ssm.models.linear import Linear, linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.linear_ssm import discretized, hippo_normal, real_pairs
from ssm.models.mixers.parts import log_uniform, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.s5 import S5Mixer

SLOWEST = -1e-4  # upper limit of the real parts of A, so that no state grows (the authors' `clip_eigs`)


class S5(Mixer, kind="s5"):
    """One system with vectors as inputs and outputs, a skip connection, and y * sigmoid(W y) for y after GELU.

    State: "memory" (B, 1, P / 2, 2), real and imaginary parts.
    """

    def __init__(self, spec: S5Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        D, P, J = d_model, spec.d_state, spec.blocks
        A, vectors = hippo_normal(P // J)  # (P / 2 J,), (P / J, P / 2 J)
        V = torch.block_diag(*[vectors] * J)  # (P, P / 2)
        self.log_dt = nn.Parameter(log_uniform(P // 2, *spec.dt_range).log())
        self.A_real = nn.Parameter(A.real.repeat(J))  # (P / 2,)
        self.A_imag = nn.Parameter(A.imag.repeat(J))
        B = torch.randn(P, D) / math.sqrt(P)  # in the basis before diagonalization
        C = torch.view_as_complex(torch.randn(D, P, 2)) / math.sqrt(P)
        self.B = nn.Parameter(torch.view_as_real(V.mH @ B.to(V.dtype)).clone())  # (P / 2, D, 2)
        self.C = nn.Parameter(torch.view_as_real(C @ V).clone())  # (D, P / 2, 2)
        self.D = nn.Parameter(torch.randn(D))
        self.gate = Linear(D, D)

    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """a (P / 2,), b (P / 2, D), c (D, P / 2) of h_t = a h_{t-1} + b x_t, y_t = Re(c h_t)."""
        A = torch.complex(upcast(self.A_real).clamp(max=SLOWEST), upcast(self.A_imag))
        a, b = discretized(A, upcast(self.log_dt).exp(), self.spec.discretization)
        B, C = (torch.view_as_complex(upcast(weight)) for weight in (self.B, self.C))
        return a, b.unsqueeze(-1) * B, 2 * C  # 2: each state represents a conjugate pair

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        h0 = None if state is None else torch.view_as_complex(state["memory"]).squeeze(1)  # (B, P / 2)
        a, b, c = self.system()
        # Products of real matrices: Re(c h) = Re c Re h - Im c Im h
        inputs = upcast(linear(u, real_pairs(b.mT).mT.to(u.dtype)))  # (B, T, P)
        h, last = diagonal_scan(a, torch.view_as_complex(inputs.unflatten(-1, (-1, 2))), h0, resets=resets)
        y = linear(real_pairs(h), real_pairs(c.conj()))  # (B, T, D)
        return self._finish(y, u), {"memory": torch.view_as_real(last).unsqueeze(1)}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """h_t = a h_{t-1} + b x_t and y_t = 2 Re(C h_t) + D x_t (Section 3.1, eq. 2 discretized)."""
        a, b, c = self.system()
        h = upcast(u).to(b.dtype) @ b.mT  # (B, P / 2)
        if state is not None:
            h = h + a * torch.view_as_complex(state["memory"]).squeeze(1)
        return self._finish((h @ c.mT).real, u), {"memory": torch.view_as_real(h).unsqueeze(1)}

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        y = F.gelu(upcast(y) + self.D * u).to(u.dtype)
        return y * torch.sigmoid(self.gate(y))
