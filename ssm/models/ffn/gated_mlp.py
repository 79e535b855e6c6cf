"""The gated MLP: SwiGLU, GeGLU (Shazeer 2020, "GLU Variants Improve Transformer")."""

from __future__ import annotations

from torch import Tensor

from ssm.models.ffn.base import Ffn
from ssm.models.ffn.mlp import ACTIVATIONS
from ssm.models.linear import Linear
from ssm.models.mixers.parts import residual_init, small_init
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.ffn.gated_mlp import GatedMlp


class GatedMlpFfn(Ffn, kind="gated_mlp"):
    """W_2 (act(W_g x) * W_1 x), with GPT-NeoX's initialization."""

    def __init__(self, spec: GatedMlp, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.up_proj = Linear(d_model, 2 * spec.d_hidden, bias=spec.bias)  # gate, up
        self.down_proj = Linear(spec.d_hidden, d_model, bias=spec.bias)
        small_init(self.up_proj.weight)
        residual_init(self.down_proj.weight, n_layers)

    def forward(self, x: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        gate, up = self.up_proj(x).chunk(2, -1)
        return self.down_proj(ACTIVATIONS[self.spec.activation](gate) * up), {}
