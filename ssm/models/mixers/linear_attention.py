"""Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs"), with the feature maps of bn Appendix B."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from ssm_kernels import gated_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.mixers.parts import upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.linear_attention import LinearAttentionMixer

FAVOR_SUM = 1e-24  # a typical small sum of favor's features: normalizer_eps is relative to it


class LinearAttention(Mixer, kind="linear_attention"):
    """y_t = phi(q_t)^T S_t, divided by phi(q_t)^T z_t with a normalizer.

    State: "memory" S (B, H, K, V), the sum of phi(k) v^T. With a normalizer, also "normalizer" z (B, H, K), the sum of
    phi(k). The normalizer is not part of the memory, because noise on it could make a denominator negative.

    Range of favor: its features are exponentials of any size. A common factor of a query's features cancels in the
    ratio, so the largest feature of each query is scaled to 1. Keys cannot be scaled, because the whole state needs one
    scale, and a larger key can follow. In float32, features of keys below 1e-38 are 0, and a token with a sum far below
    1e-30 reads zeros. For example, let queries and keys have 64 dimensions. With a standard deviation of 6 in each
    dimension, half of the tokens read zeros; with 5, few tokens; with 3.5, only the first token of some sequences.
    """

    directions: Tensor

    def __init__(self, spec: LinearAttentionMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.features, self.value_dim = spec.state_shape(d_model)  # H, K, V
        self.key_dim = spec.key_dim or d_model // spec.n_heads
        self.sizes = [self.heads * self.key_dim, self.heads * self.key_dim, self.heads * self.value_dim]
        self.in_proj = Linear(d_model, sum(self.sizes), bias=False)  # q, k, v
        self.out_proj = Linear(self.heads * self.value_dim, d_model, bias=False)
        self.eps = spec.normalizer_eps * (FAVOR_SUM if spec.feature_map == "favor" else 1.0)  # of the denominator
        if spec.feature_map == "favor":
            self.register_buffer("directions", _orthogonal(self.key_dim, self.features // 2))  # (key_dim, K / 2)
        if spec.feature_map == "hedgehog":
            self.map = nn.Parameter(torch.eye(self.key_dim).repeat(self.heads, 1, 1))  # (H, key_dim, K / 2)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        memory, normalizer = (None, None) if state is None else (state["memory"], state.get("normalizer"))
        q, k, v = self._qkv(u)
        y, memory = gated_scan(q, k, v, None, memory, resets=resets, chunk=self.spec.chunk)  # (B, T, H, V)
        ended = {"memory": memory}
        if self.spec.normalizer:
            start = None if normalizer is None else normalizer.unsqueeze(-1)
            ones = torch.ones_like(v[..., :1])  # (B, T, H, 1): z is the memory of values that are all 1
            total, end = gated_scan(q, k, ones, None, start, resets=resets, chunk=self.spec.chunk)
            y = y / (total + self.eps)
            ended["normalizer"] = end.squeeze(-1)
        return self.out_proj(y.flatten(2).to(u.dtype)), ended

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """S_t = S_{t-1} + phi(k_t) v_t^T, z_t = z_{t-1} + phi(k_t), y_t = S_t^T phi(q_t) / z_t . phi(q_t).

        These are eq. 18 to 20 of the paper, without its residual connection and feed-forward layer.
        """
        q, k, v = (x.squeeze(1) for x in self._qkv(u.unsqueeze(1)))  # (B, H, K), (B, H, K), (B, H, V)
        memory = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
        memory = memory if state is None else state["memory"] + memory
        y = (q.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
        ended = {"memory": memory}
        if self.spec.normalizer:
            ended["normalizer"] = k if state is None else state["normalizer"] + k  # (B, H, K)
            y = y / ((q * ended["normalizer"]).sum(-1, keepdim=True) + self.eps)
        return self.out_proj(y.flatten(1).to(u.dtype)), ended

    def coefficients(self, u: Tensor) -> Coefficients:
        recurrence = super().coefficients(u)
        return replace(recurrence, normalizer_eps=self.eps) if self.spec.normalizer else recurrence

    def faded(self, state: LayerState, factor: float) -> LayerState:
        """As `Mixer.faded`: S and z keep the same share, because y_t divides one by the other."""
        return state | {name: factor * state[name] for name in ("memory", "normalizer") if name in state}

    def _qkv(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """phi(q) and phi(k) (B, T, H, K), v (B, T, H, V), in float32."""
        q, k, v = (upcast(x).unflatten(-1, (self.heads, -1)) for x in self.in_proj(u).split(self.sizes, -1))
        q, k = self._favor(q, k) if self.spec.feature_map == "favor" else (self._feature_map(q), self._feature_map(k))
        # This constant cancels with a normalizer, and favor's features include it.
        scale = self.features**-0.5 if not self.spec.normalizer and self.spec.feature_map != "favor" else 1.0
        return q * scale, k, v

    def _feature_map(self, x: Tensor) -> Tensor:
        """phi: (B, T, H, key_dim) -> (B, T, H, K)."""
        name = self.spec.feature_map
        if name == "elu_plus_one":
            return F.elu(x) + 1
        if name == "relu":
            return x.relu()
        if name == "hedgehog":
            mapped = torch.einsum("bthi,hij->bthj", x, upcast(self.map))
            return torch.cat([mapped, -mapped], -1).softmax(-1)  # exp without overflow
        return x

    def _favor(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """phi(q) and phi(k), whose product estimates exp(q . k / sqrt(key_dim)), with a normalizer up to a factor.

        The factor depends only on the query (Choromanski et al. 2020, Lemma 1, hyperbolic cosine).
        """
        q, k = self._logits(q), self._logits(k)
        if self.spec.normalizer:
            q = q - q.detach().amax(-1, keepdim=True)
        return q.exp() * self.features**-0.5, k.exp() * self.features**-0.5

    def _logits(self, x: Tensor) -> Tensor:
        """log(sqrt(K) phi(x)), the logarithms of favor's features: (B, T, H, key_dim) -> (B, T, H, K)."""
        x = x * self.key_dim**-0.25
        projected = x @ self.directions.to(x.dtype)  # (B, T, H, K / 2)
        return torch.cat([projected, -projected], -1) - x.square().sum(-1, keepdim=True) / 2


def _orthogonal(rows: int, columns: int) -> Tensor:
    """(rows, columns): N(0, 1) directions, orthogonal within each block of `rows` columns (Choromanski et al. 2020)."""
    blocks = [torch.linalg.qr(torch.randn(rows, rows))[0] for _ in range(-(-columns // rows))]
    return torch.cat(blocks, 1)[:, :columns] * torch.randn(rows, columns).norm(dim=0)
