"""A mixture of experts (Shazeer et al. 2017) with a shared expert, as in Qwen and DeepSeek-V3."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.ffn.base import Ffn
from ssm.models.ffn.gated_mlp import GatedMlpFfn
from ssm.models.linear import Linear, linear
from ssm.models.mixers.parts import residual_init, small_init, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp


class ExpertsFfn(Ffn, kind="experts"):
    """The weighted sum of k of E experts, plus a shared expert, which can have a gate.

    An expert is W_2 (silu(W_g x) * W_1 x). Gradients reach the router through the weights of the chosen experts. There
    is no load-balancing loss, and training does not change the bias of the choice.
    """

    choice_bias: Tensor  # (E,), only for sigmoid scores

    def __init__(self, spec: Experts, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        E, hidden = spec.n_experts, spec.d_hidden
        self.router = Linear(d_model, E, bias=False)
        self.up_proj = nn.Parameter(torch.empty(2 * E, hidden, d_model))  # expert by expert: gate, up
        self.down_proj = nn.Parameter(torch.empty(E, d_model, hidden))
        self.shared = GatedMlpFfn(GatedMlp(d_hidden=spec.d_shared), d_model, n_layers)
        if spec.shared_gate:
            self.shared_gate = Linear(d_model, 1, bias=False)
            small_init(self.shared_gate.weight)
        if spec.scores == "sigmoid":
            self.register_buffer("choice_bias", torch.zeros(E))
        for weight in (self.router.weight, self.up_proj.flatten(0, 1)):
            small_init(weight)
        residual_init(self.down_proj.transpose(0, 1), n_layers)

    def forward(self, x: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        tokens = x.flatten(0, -2)  # (N, D)
        y = self.shared(tokens)[0]  # (N, D)
        if self.spec.shared_gate:
            y = torch.sigmoid(self.shared_gate(tokens)) * y
        weights, chosen = self.routed(tokens)  # (N, k)
        order = chosen.flatten().argsort(stable=True)  # (N k,): indices into `chosen`, sorted by expert
        counts = chosen.flatten().bincount(minlength=self.spec.n_experts).tolist()
        rows, scales = order // self.spec.top_k, weights.flatten()[order]  # (N k,): token and weight
        ups = self.up_proj.unflatten(0, (-1, 2)).flatten(1, 2)  # (E, 2 hidden, D)
        for up, down, row, scale in zip(ups, self.down_proj, rows.split(counts), scales.split(counts), strict=True):
            if len(row):
                gate, value = linear(tokens[row], up).chunk(2, -1)
                outputs = linear(F.silu(gate) * value, down) * scale.unsqueeze(-1)
                y.index_add_(0, row, outputs.to(y.dtype))  # deterministic: an expert gets each token once
        return y.unflatten(0, x.shape[:-1]), {}

    def routed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and indices (N, k) of the experts for tokens (N, D)."""
        scores = upcast(self.router(tokens))  # (N, E)
        scores = scores.softmax(-1) if self.spec.scores == "softmax" else scores.sigmoid()
        biased = scores if self.spec.scores == "softmax" else scores + self.choice_bias
        chosen = biased.topk(self.spec.top_k).indices
        weights = scores.gather(-1, chosen)
        if self.spec.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return self.spec.scale * weights, chosen
