"""S4D (Gu, Gupta, Goel & Re 2022, "On the Parameterization and Initialization of Diagonal State Space Models")."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from ssm_kernels import diagonal_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.mixers.linear_ssm import ChannelSystems, HeadSystems, inverse_imaginary, linear_imaginary
from ssm.models.mixers.parts import upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.s4d import S4dMixer


class S4d(HeadSystems, ChannelSystems, kind="s4d"):
    """One system of N / 2 complex states for each channel (Section 3), a skip connection, GELU, a gated linear map.

    With `decay: input_dependent`, each token has its own step sizes, and so its own a and b. This is no convolution, so
    that the states of all tokens are computed. At initialization W is 0, and dt nearly that of the constant decay.

    State: "memory" (B, D, N / 2, 2), real and imaginary parts.
    """

    def __init__(self, spec: S4dMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        imaginary = linear_imaginary if spec.init == "lin" else inverse_imaginary
        self.make_system(d_model, imaginary(spec.d_state // 2))
        if spec.decay == "input_dependent":
            self.dt_proj = Linear(d_model, d_model, bias=False)  # W
            nn.init.zeros_(self.dt_proj.weight)
        self.out_proj = Linear(d_model, 2 * d_model)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        if self.spec.decay == "constant":
            return super().forward(u, state, resets)
        a, b, c = self.system_of(u)  # (B, T, D, N / 2); c (D, N / 2)
        added = b * upcast(u).unsqueeze(-1)  # (B, T, D, N / 2)
        h0 = None if state is None else torch.view_as_complex(state["memory"]).flatten(1)
        h, last = diagonal_scan(a.flatten(2), added.flatten(2), h0, resets=resets)
        y = (c * h.view_as(a)).sum(-1).real  # (B, T, D)
        return self._finish(y, u), {"memory": torch.view_as_real(last.view(-1, *c.shape))}

    def system_of(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.spec.decay == "constant":
            return self.system()
        return self.system(F.softplus(upcast(self.dt_proj(u)) + upcast(self.log_dt)))

    def coefficients(self, u: Tensor) -> Coefficients:
        recurrence = super().coefficients(u)
        if self.spec.decay == "constant":
            return recurrence
        return replace(recurrence, bare_key=torch.view_as_complex(upcast(self.B))[None, None])

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        return F.glu(self.out_proj(F.gelu(y + self.D * u).to(u.dtype)))
