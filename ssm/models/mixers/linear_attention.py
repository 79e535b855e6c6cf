"""Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs"), with the feature maps of bn Appendix B."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from ssm_kernels import gated_scan
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer, MixerState
from ssm.models.mixers.parts import wide
from ssm.specs.mixers.linear_attention import LinearAttentionMixer

FAVOR_SUM = 1e-24  # favor's sums may be this small, and normalizer_eps is small beside that


class LinearAttention(Mixer, kind="linear_attention"):
    """y_t = phi(q_t)^T S_t, divided by phi(q_t)^T z_t where the normalizer is on.

    State: "memory" S (B, H, K, V), the sum of phi(k) v^T, and with the normalizer "normalizer" z (B, H, K), the sum of
    phi(k). z stands apart, so that norms and noise speak of S alone: noise could turn a denominator negative.

    The features of favor are exponentials, of any size. What a query's have in common cancels in the ratio: its largest
    is made 1. Keys have no such freedom, for all that a state holds must have one scale, and the largest key is still
    to come: their features are as they are, in float32 those under 1e-38 count as 0, and a token whose sum is far below
    1e-30 reads zeros. That befalls few tokens where queries and keys have a standard deviation of 5 in each of 64
    dimensions, and half of them at 6; at 3.5 perhaps a sequence's first.
    """

    directions: Tensor

    def __init__(self, spec: LinearAttentionMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.features, self.value_dim = spec.state_shape(d_model)  # H, K, V
        self.key_dim = spec.key_dim or d_model // spec.n_heads
        self.sizes = [self.heads * self.key_dim, self.heads * self.key_dim, self.heads * self.value_dim]
        self.in_proj = nn.Linear(d_model, sum(self.sizes), bias=False)  # q, k, v
        self.out_proj = nn.Linear(self.heads * self.value_dim, d_model, bias=False)
        self.eps = spec.normalizer_eps * (FAVOR_SUM if spec.feature_map == "favor" else 1.0)  # of the denominator
        if spec.feature_map == "favor":
            self.register_buffer("directions", _orthogonal(self.key_dim, self.features // 2))  # (key_dim, K / 2)
        if spec.feature_map == "hedgehog":
            self.map = nn.Parameter(torch.eye(self.key_dim).repeat(self.heads, 1, 1))  # (H, key_dim, K / 2)

    def forward(
        self, u: Tensor, state: MixerState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, MixerState]:
        memory, normalizer = (None, None) if state is None else (state["memory"], state.get("normalizer"))
        q, k, v = self._qkv(u)
        y, memory = gated_scan(q, k, v, None, memory, resets=resets, chunk=self.spec.chunk)  # (B, T, H, V)
        ended = {"memory": memory}
        if self.spec.normalizer:
            start = None if normalizer is None else normalizer.unsqueeze(-1)
            ones = torch.ones_like(v[..., :1])  # (B, T, H, 1): z is the state of a value that is always 1
            total, end = gated_scan(q, k, ones, None, start, resets=resets, chunk=self.spec.chunk)
            y = y / (total + self.eps)
            ended["normalizer"] = end.squeeze(-1)
        return self.out_proj(y.flatten(2).to(u.dtype)), ended

    def step(self, u: Tensor, state: MixerState | None = None) -> tuple[Tensor, MixerState]:
        """S_t = S_{t-1} + phi(k_t) v_t^T, z_t = z_{t-1} + phi(k_t), y_t = S_t^T phi(q_t) / z_t . phi(q_t) (eq. 18)."""
        q, k, v = (x.squeeze(1) for x in self._qkv(u.unsqueeze(1)))  # (B, H, K), (B, H, K), (B, H, V)
        memory = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
        memory = memory if state is None else state["memory"] + memory
        y = (q.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
        ended = {"memory": memory}
        if self.spec.normalizer:
            ended["normalizer"] = k if state is None else state["normalizer"] + k  # (B, H, K)
            y = y / ((q * ended["normalizer"]).sum(-1, keepdim=True) + self.eps)
        return self.out_proj(y.flatten(1).to(u.dtype)), ended

    def _qkv(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """phi(q) and phi(k) (B, T, H, K), v (B, T, H, V), in float32."""
        q, k, v = (wide(x).unflatten(-1, (self.heads, -1)) for x in self.in_proj(u).split(self.sizes, -1))
        q, k = self._favor(q, k) if self.spec.feature_map == "favor" else (self._feature_map(q), self._feature_map(k))
        # A constant that a normalizer would cancel; favor has it inside.
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
            mapped = torch.einsum("bthi,hij->bthj", x, wide(self.map))
            return torch.cat([mapped, -mapped], -1).softmax(-1)  # exp, kept in range
        return x

    def _favor(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """phi(q) . phi(k) estimates exp(q . k / sqrt(key_dim)) (Choromanski et al. 2020, Lemma 1, hyperbolic cosine).

        With a normalizer, up to a factor for every query.
        """
        q, k = self._logits(q), self._logits(k)
        if self.spec.normalizer:
            q = q - q.detach().amax(-1, keepdim=True)
        return q.exp() * self.features**-0.5, k.exp() * self.features**-0.5

    def _logits(self, x: Tensor) -> Tensor:
        """The logarithms of favor's features, times sqrt(K): (B, T, H, key_dim) -> (B, T, H, K)."""
        x = x * self.key_dim**-0.25
        projected = x @ self.directions.to(x.dtype)  # (B, T, H, K / 2)
        return torch.cat([projected, -projected], -1) - x.square().sum(-1, keepdim=True) / 2


def _orthogonal(rows: int, columns: int) -> Tensor:
    """(rows, columns): N(0, 1) directions, orthogonal within every block of `rows` (Choromanski et al. 2020)."""
    blocks = [torch.linalg.qr(torch.randn(rows, rows))[0] for _ in range(-(-columns // rows))]
    return torch.cat(blocks, 1)[:, :columns] * torch.randn(rows, columns).norm(dim=0)
