"""The spec of a mixture of experts."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.ffn.base import FfnSpecBase
from ssm.specs.sublayer import ActivationMemory, linear


class Experts(FfnSpecBase):
    """A mixture of E gated perceptrons. A router chooses k of them for each token (Shazeer et al. 2017).

    Every token also passes a shared expert. Qwen multiplies its output by a gate (Qwen Team 2024, "Qwen2 Technical
    Report", Section 2.2.2). `scores: sigmoid` is the router of DeepSeek-V3 (DeepSeek-AI 2024, eq. 12-16). There, a bias
    that is not trained changes which experts are chosen, but not their weights.
    """

    kind: Literal["experts"] = "experts"
    n_experts: PositiveInt  # E, number of experts
    top_k: PositiveInt  # k, experts for each token
    d_hidden: PositiveInt  # hidden width of an expert
    d_shared: PositiveInt  # hidden width of the shared expert
    scores: Literal["softmax", "sigmoid"] = "softmax"  # function from router outputs to expert weights
    normalize: bool = True  # divide the weights of the chosen experts by their sum
    scale: PositiveFloat = 1.0  # factor on these weights
    shared_gate: bool = True  # sigmoid(w x) multiplies the output of the shared expert

    @model_validator(mode="after")
    def _enough_experts(self) -> Experts:
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

    def activation_memory(self, d_model: int) -> ActivationMemory:
        routed = 2 * d_model + 4 * self.d_hidden  # input and output of an expert; gate, up, activated gate, product
        return ActivationMemory(self.top_k * routed + 2 * self.n_experts + d_model + 4 * self.d_shared, bfloat16=0.6)
