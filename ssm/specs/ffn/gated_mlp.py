"""The spec of the gated perceptron."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class GatedMlp(FfnSpecBase):
    """W_2 (act(W_g x) * W_1 x) (Shazeer 2020).

    With `silu` it is SwiGLU, as in GLA and Mistral. With `gelu` it is GeGLU, as in Griffin.
    """

    kind: Literal["gated_mlp"] = "gated_mlp"
    d_hidden: PositiveInt  # hidden width
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"  # act; `gelu_tanh` approximates gelu by a tanh
    bias: bool = False  # biases on the linear maps

    def parameters(self, d_model: int) -> int:
        return linear(d_model, 2 * self.d_hidden, self.bias) + linear(self.d_hidden, d_model, self.bias)  # gate, up

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(4 * self.d_hidden, bfloat16=0.6)  # gate, up, activated gate, product
