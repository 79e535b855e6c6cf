"""S4D (Gu, Gupta, Goel & Re 2022, "On the Parameterization and Initialization of Diagonal State Space Models")."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.mixers.linear_ssm import ChannelSystems, HeadSystems, inverse_imaginary, linear_imaginary
from ssm.specs.mixers.s4d import S4dMixer


class S4d(HeadSystems, ChannelSystems, kind="s4d"):
    """One system of N / 2 complex states for each channel (Section 3), a skip connection, GELU, a gated linear map."""

    def __init__(self, spec: S4dMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        imaginary = linear_imaginary if spec.init == "lin" else inverse_imaginary
        self.make_system(d_model, imaginary(spec.d_state // 2))
        self.out_proj = nn.Linear(d_model, 2 * d_model)

    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        return F.glu(self.out_proj(F.gelu(y + self.D * u).to(u.dtype)))
