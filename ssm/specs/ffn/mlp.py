"""The spec of the two-layer perceptron."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class Mlp(FfnSpecBase):
    """W_2 act(W_1 x), as in GPT-NeoX and RetNet."""

    kind: Literal["mlp"] = "mlp"
    d_hidden: PositiveInt  # hidden width
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"  # act; `gelu_tanh` approximates gelu by a tanh
    bias: bool = False  # biases on the linear maps

    def parameters(self, d_model: int) -> int:
        return linear(d_model, self.d_hidden, self.bias) + linear(self.d_hidden, d_model, self.bias)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(2 * self.d_hidden)  # before and after act
