"""The MLP with two layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from ssm.models.ffn.base import Ffn
from ssm.models.linear import Linear
from ssm.models.mixers.parts import residual_init, small_init
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.ffn.mlp import Mlp

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class MlpFfn(Ffn, kind="mlp"):
    """W_2 act(W_1 x), with GPT-NeoX's initialization."""

    def __init__(self, spec: Mlp, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.up_proj = Linear(d_model, spec.d_hidden, bias=spec.bias)
        self.down_proj = Linear(spec.d_hidden, d_model, bias=spec.bias)
        small_init(self.up_proj.weight)
        residual_init(self.down_proj.weight, n_layers)

    def forward(self, x: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        return self.down_proj(ACTIVATIONS[self.spec.activation](self.up_proj(x))), {}
