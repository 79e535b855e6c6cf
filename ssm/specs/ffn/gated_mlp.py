"""The spec of the gated perceptron."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class GatedMlp(FfnSpecBase):
    """W_2 (act(W_g x) * W_1 x): SwiGLU with silu (GLA, Mistral), GeGLU with gelu (Griffin) (Shazeer 2020)."""

    kind: Literal["gated_mlp"] = "gated_mlp"
    d_hidden: PositiveInt
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"
    bias: bool = False

    def parameters(self, d_model: int) -> int:
        return linear(d_model, 2 * self.d_hidden, self.bias) + linear(self.d_hidden, d_model, self.bias)  # gate, up

    def state_numbers(self, d_model: int, context: int) -> int:
        return 0

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(4 * self.d_hidden, bfloat16=0.6)  # gate and up, act of the gate, their product
