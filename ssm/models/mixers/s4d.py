"""S4D (Gu, Gupta, Goel & Re 2022, "On the Parameterization and Initialization of Diagonal State Space Models")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.mixers.base import MixerState
from ssm.models.mixers.linear_ssm import DiagonalSystem, inverse_imaginary, linear_imaginary, scan_systems, step_systems
from ssm.models.mixers.parts import wide
from ssm.specs.mixers.s4d import S4dMixer


class S4d(DiagonalSystem, kind="s4d"):
    """One system of N / 2 complex states for every channel, a skip connection, GELU, and a linear map gated by another.

    State: "memory" (B, D, N / 2, 2), real and imaginary parts.
    """

    def __init__(self, spec: S4dMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        imaginary = linear_imaginary if spec.init == "lin" else inverse_imaginary
        self.make_system(d_model, imaginary(spec.d_state // 2))
        self.out_proj = nn.Linear(d_model, 2 * d_model)

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
