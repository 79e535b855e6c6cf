"""The spec of the plain two-layer perceptron."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class Mlp(FfnSpecBase):
    """W_2 act(W_1 x) (GPT-NeoX, RetNet)."""

    kind: Literal["mlp"] = "mlp"
    d_hidden: PositiveInt
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"  # gelu_tanh: its approximation by a tanh
    bias: bool = False

    def parameters(self, d_model: int) -> int:
        return linear(d_model, self.d_hidden, self.bias) + linear(self.d_hidden, d_model, self.bias)

    def state_numbers(self, d_model: int, context: int) -> int:
        return 0

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return ActivationMemory(2 * self.d_hidden)  # before and behind act
