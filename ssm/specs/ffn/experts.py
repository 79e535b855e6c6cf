"""The spec of a mixture of experts."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class Experts(FfnSpecBase):
    """k of E gated perceptrons for every token, chosen by a router (Shazeer et al. 2017), and one that all tokens pass.

    The one for all is weighed by a gate in Qwen (Qwen Team 2024, "Qwen2 Technical Report", Section 2.2.2). With scores
    by a sigmoid it is DeepSeek-V3's (DeepSeek-AI 2024, eq. 12-16): a bias that is not trained enters the choice alone.
    """

    kind: Literal["experts"] = "experts"
    n_experts: PositiveInt  # E
    top_k: PositiveInt  # k
    d_hidden: PositiveInt  # of each of the E
    d_shared: PositiveInt  # of the one for all
    scores: Literal["softmax", "sigmoid"] = "softmax"  # of the router's numbers: the weights of the k, their largest
    normalize: bool = True  # the weights of the k are divided by their sum
    scale: PositiveFloat = 1.0  # of these weights
    shared_gate: bool = True  # sigmoid(w x) weighs the one for all

    @model_validator(mode="after")
    def _sane(self) -> Experts:
        if self.top_k > self.n_experts:
            raise ValueError(f"top_k: {self.top_k} of {self.n_experts} experts cannot be chosen")
        return self

    def parameters(self, d_model: int) -> int:
        shared = 3 * linear(d_model, self.d_shared) + self.shared_gate * linear(d_model, 1)
        return linear(d_model, self.n_experts) + self.n_experts * self._expert(d_model) + shared

    def idle(self, d_model: int) -> int:
        return (self.n_experts - self.top_k) * self._expert(d_model)

    def _expert(self, d_model: int) -> int:
        return 3 * linear(d_model, self.d_hidden)  # gate, up, down

    def state_numbers(self, d_model: int, context: int) -> int:
        return 0

    def activation_memory(self, d_model: int) -> ActivationMemory:
        routed = 2 * d_model + 4 * self.d_hidden  # what an expert reads and gives; gate, up, act of the gate, product
        return ActivationMemory(self.top_k * routed + 2 * self.n_experts + d_model + 4 * self.d_shared, bfloat16=0.6)
