"""A mixture of experts (Shazeer et al. 2017), with one that all tokens pass, as in Qwen and DeepSeek-V3."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.models.ffn.base import Ffn, FfnState
from ssm.models.ffn.gated_mlp import GatedMlpFfn
from ssm.models.mixers.parts import residual_init, small_init, wide
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp


class ExpertsFfn(Ffn, kind="experts"):
    """The weighed sum of what k of E experts make of a token, and what the shared one makes of it, gated or not.

    An expert is W_2 (silu(W_g x) * W_1 x). Gradients reach the router through the weights of those it chose; no loss
    asks that the experts be used alike, and the bias of a choice by sigmoids stays what it is. It has no state.
    """

    choice_bias: Tensor  # (E,), where scores are sigmoids

    def __init__(self, spec: Experts, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        E, hidden = spec.n_experts, spec.d_hidden
        self.router = nn.Linear(d_model, E, bias=False)
        self.up_proj = nn.Parameter(torch.empty(2 * E, hidden, d_model))  # gate, up of one expert after the other
        self.down_proj = nn.Parameter(torch.empty(E, d_model, hidden))
        self.shared = GatedMlpFfn(GatedMlp(d_hidden=spec.d_shared), d_model, n_layers)
        if spec.shared_gate:
            self.shared_gate = nn.Linear(d_model, 1, bias=False)
            small_init(self.shared_gate.weight)
        if spec.scores == "sigmoid":
            self.register_buffer("choice_bias", torch.zeros(E))
        for weight in (self.router.weight, self.up_proj.flatten(0, 1)):
            small_init(weight)
        residual_init(self.down_proj.transpose(0, 1), n_layers)

    def forward(
        self, x: Tensor, state: FfnState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, FfnState]:
        tokens = x.flatten(0, -2)  # (N, D)
        y = self.shared(tokens)[0]  # (N, D)
        if self.spec.shared_gate:
            y = torch.sigmoid(self.shared_gate(tokens)) * y
        weights, chosen = self.routed(tokens)  # (N, k)
        order = chosen.flatten().argsort(stable=True)  # (N k,): places in `chosen`, expert by expert
        counts = chosen.flatten().bincount(minlength=self.spec.n_experts).tolist()
        read, weighed = order // self.spec.top_k, weights.flatten()[order]  # (N k,): which token, with which weight
        ups = self.up_proj.unflatten(0, (-1, 2)).flatten(1, 2)  # (E, 2 hidden, D)
        for up, down, rows, weight in zip(ups, self.down_proj, read.split(counts), weighed.split(counts), strict=True):
            if len(rows):
                gate, value = F.linear(tokens[rows], up).chunk(2, -1)
                made = F.linear(F.silu(gate) * value, down) * weight.unsqueeze(-1)
                y.index_add_(0, rows, made.to(y.dtype))  # no token twice: one order of summation
        return y.unflatten(0, x.shape[:-1]), {}

    def step(self, x: Tensor, state: FfnState | None = None) -> tuple[Tensor, FfnState]:
        return self(x)

    def routed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers (N, k) of the experts for tokens (N, D)."""
        scores = wide(self.router(tokens))  # (N, E)
        scores = scores.softmax(-1) if self.spec.scores == "softmax" else scores.sigmoid()
        judged = scores if self.spec.scores == "softmax" else scores + self.choice_bias
        chosen = judged.topk(self.spec.top_k).indices
        weights = scores.gather(-1, chosen)
        if self.spec.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return self.spec.scale * weights, chosen
