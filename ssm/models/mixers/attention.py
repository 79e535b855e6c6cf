"""Causal softmax attention with rotary positions (Vaswani et al. 2017; Su et al. 2021). Its state is the cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import conv_init, residual_init, rms_head_norm, small_init, upcast
from ssm.models.mixers.rotary import rotate, rotation
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.attention import AttentionMixer


class Attended(NamedTuple):
    """What the tokens of a sequence attend with and to. S: the tokens of the cache before them."""

    q: Tensor  # (B, H, T, K), rotated
    keys: Tensor  # (B, G, S + T, K), rotated
    values: Tensor  # (B, G, S + T, V)
    mask: Tensor | None  # (B, 1, T, S + T) bool, the tokens that each token sees; None: itself and all earlier ones
    gate: Tensor | None  # (B, T, H, V)
    state: LayerState  # after the last token

    @property
    def full_mask(self) -> Tensor:
        """The tokens that each token sees: the mask, or (T, T) bool if there is none."""
        if self.mask is not None:
            return self.mask
        T = self.q.shape[2]
        return torch.ones(T, T, dtype=torch.bool, device=self.q.device).tril()


class Attention(Mixer, kind="attention"):
    """Attention with H heads of queries and G <= H heads of keys and values.

    State: "memory", the cache (B, G, S, 2, K) with keys (before rotation) and values of the S last tokens, and "seen"
    (B, S) bool, which tokens exist. A window keeps the last window - 1 tokens. With a convolution, "conv" has its last
    inputs. With a latent, the cache is (B, 1, S, 1, R + shared): keys and values are computed from it when needed.

    A reset marks earlier tokens as unseen, which gives them the weight 0. So does a row of zeros: the zero state is an
    empty cache of any length. Positions are counted from the first token of the cache, because rotary positions are
    relative.
    """

    def __init__(self, spec: AttentionMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.groups = spec.n_heads, spec.heads(d_model)  # H, G
        self.head_dim, self.value_dim = spec.key_dim(d_model), spec.read_dim(d_model)  # K, V
        keys = self.groups * self.head_dim
        self.sizes = [(1 + spec.gate) * self.heads * self.head_dim, keys, keys]
        if spec.latent_dim is not None:
            self.groups, self.sizes[1:] = self.heads, [spec.latent_dim, spec.shared_dim]
            keys_and_values = self.heads * (self.head_dim - spec.shared_dim + self.value_dim)
            self.latent_norm_weight = nn.Parameter(torch.ones(spec.latent_dim))
            self.latent_proj = Linear(spec.latent_dim, keys_and_values, bias=False)  # by head: k, v
            small_init(self.latent_proj.weight)
        self.in_proj = Linear(d_model, sum(self.sizes), bias=spec.bias)  # q (by head: q, gate), k, v or the latent
        if spec.qk_norm:
            self.q_norm_weight = nn.Parameter(torch.zeros(self.head_dim))  # the scale is 1 + weight
            self.k_norm_weight = nn.Parameter(torch.zeros(self.head_dim))
        self.out_proj = Linear(self.heads * self.value_dim, d_model, bias=spec.output_bias)
        if spec.d_conv is not None:
            self.conv_weight = nn.Parameter(torch.empty(sum(self.sizes), spec.d_conv))
            self.conv_bias = nn.Parameter(torch.empty(sum(self.sizes)))
            conv_init(self.conv_weight, self.conv_bias)
        small_init(self.in_proj.weight)
        residual_init(self.out_proj.weight, n_layers)
        for linear in (self.in_proj, self.out_proj):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        q, keys, values, mask, gate, ended = self.attended(u, state, resets)
        if self.value_dim != self.head_dim:  # memory-efficient kernels need equal sizes of keys and values
            width = max(self.head_dim, self.value_dim)
            q, keys, values = (F.pad(x, (0, width - x.shape[-1])) for x in (q, keys, values))
        groups = self.groups
        if groups != self.heads and q.is_cuda and (mask is not None or q.dtype.itemsize > 2):
            # With groups, only flash attention stores no scores, and it needs half precision and no mask.
            keys, values = (x.repeat_interleave(self.heads // groups, 1) for x in (keys, values))  # (B, H, S + T, ...)
            groups = self.heads
        y = F.scaled_dot_product_attention(
            q,
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            scale=self.head_dim**-0.5,
            enable_gqa=groups != self.heads,
        )  # (B, H, T, max(K, V))
        return self._finish(y[..., : self.value_dim].transpose(1, 2), gate), ended

    def faded(self, state: LayerState, factor: float) -> LayerState:
        """As `Mixer.faded`, but the cache stays: only recurrent states fade."""
        return state

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """One token attends to the cache and itself: softmax(q . k / sqrt(K)) over the tokens that it sees."""
        (q, new, gate), conv = self._project(u.unsqueeze(1), state, None)
        q = q.squeeze(1)  # (B, H, K)
        memory, seen = self._extended(new, state)  # (B, G, S + 1, 2, K), (B, S + 1)
        distance = torch.arange(memory.shape[2] - 1, -1, -1, device=u.device)  # S, ..., 1, 0
        keys, values = self._read(memory)
        keys = rotate(keys, *self._rotation(-distance, keys))  # the new token has position 0
        keys, values = (x.repeat_interleave(self.heads // self.groups, 1) for x in (keys, values))  # (B, H, S + 1, ...)
        scores = (keys * q.unsqueeze(2)).sum(-1) * self.head_dim**-0.5  # (B, H, S + 1)
        weights = scores.masked_fill(~seen.unsqueeze(1), float("-inf")).softmax(-1)
        y = (weights.unsqueeze(-1) * values).sum(2)  # (B, H, V)
        gate = None if gate is None else gate.squeeze(1)  # (B, H, V)
        return self._finish(y, gate), self._kept(memory, seen) | conv

    def weights(self, u: Tensor) -> Tensor:
        """The attention map softmax(q k^T / sqrt(K)) from an empty cache, (B, H, T, T)."""
        attended = self.attended(u, None, None)
        keys = attended.keys.repeat_interleave(self.heads // self.groups, 1)  # (B, H, T, K)
        scores = attended.q @ keys.transpose(-1, -2) * self.head_dim**-0.5
        return scores.masked_fill(~attended.full_mask, float("-inf")).softmax(-1)

    def attended(self, u: Tensor, state: LayerState | None, resets: Tensor | None) -> Attended:
        """What `forward` attends with and to."""
        (q, new, gate), conv = self._project(u, state, resets)
        q = q.transpose(1, 2)  # (B, H, T, K)
        memory, seen = self._extended(new, state)  # (B, G, S + T, 2, K), (B, S + T)
        total = memory.shape[2]
        keys, values = self._read(memory)
        cos, sin = self._rotation(torch.arange(total, device=u.device), keys)  # (S + T, K rotated / 2)
        keys = rotate(keys, cos, sin)
        q = rotate(q, cos[total - u.shape[1] :], sin[total - u.shape[1] :])
        mask = None
        if state is not None or resets is not None or self.spec.window is not None:
            mask, seen = self._mask(seen, resets, u.shape[1])
        return Attended(q, keys, values, mask, gate, self._kept(memory, seen) | conv)

    def _project(
        self, u: Tensor, state: LayerState | None, resets: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor | None], LayerState]:
        """q (B, T, H, K), new entries of the cache (B, G, T, 2, K), gate (B, T, H, V); "conv" of the next state."""
        x, ended = self.in_proj(u), {}
        if self.spec.d_conv is not None:
            conv = None if state is None else state["conv"]
            x, ended["conv"] = causal_conv1d(x, self.conv_weight, self.conv_bias, conv, resets=resets)
        q, k, v = x.split(self.sizes, -1)
        q, gate = q.unflatten(-1, (self.heads, -1)), None
        if self.spec.latent_dim is not None:  # k is the latent, v the dimensions of keys that all heads share
            weight = upcast(self.latent_norm_weight)
            latent = F.rms_norm(upcast(k), weight.shape, weight, self.spec.norm_eps).to(v.dtype)
            return (q, torch.cat([latent, v], -1)[:, None, :, None], None), {}
        k, v = (part.unflatten(-1, (self.groups, -1)) for part in (k, v))  # (B, T, G, K)
        if self.spec.gate:
            q, gate = q.chunk(2, -1)
        if self.spec.qk_norm:
            q, k = self._normalized(q, self.q_norm_weight), self._normalized(k, self.k_norm_weight)
        return (q, torch.stack([k, v], -2).transpose(1, 2), gate), ended

    def _read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, G, S, K), before rotation, and values (B, G, S, V) of the cache."""
        if self.spec.latent_dim is None:
            keys, values = memory.unbind(-2)
            return keys, values
        latent, shared = memory[:, 0, :, 0].split(self.sizes[1:], -1)  # (B, S, R), (B, S, shared)
        both = self.latent_proj(latent).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, S, K - shared + V)
        keys, values = both.split([self.head_dim - self.spec.shared_dim, self.value_dim], -1)
        return torch.cat([keys, shared.unsqueeze(1).expand(-1, self.heads, -1, -1)], -1), values

    def _normalized(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_head_norm(x, 1 + upcast(weight), self.spec.norm_eps).to(x.dtype)

    def _finish(self, y: Tensor, gate: Tensor | None) -> Tensor:
        """The output (..., D) from the outputs of the heads and their gate, (..., H, V)."""
        return self.out_proj((y if gate is None else y * torch.sigmoid(gate)).flatten(-2))

    def _rotation(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        return rotation(positions, self.spec.rotary_dim(self.d_model), self.spec.rotary_base, like.dtype)

    def _extended(self, new: Tensor, state: LayerState | None) -> tuple[Tensor, Tensor]:
        """The cache extended by new keys and values (B, G, T, 2, K), and which of its tokens exist."""
        exist = torch.ones(new.shape[0], new.shape[2], dtype=torch.bool, device=new.device)  # (B, T)
        if state is None:
            return new, exist
        return torch.cat([state["memory"].to(new.dtype), new], 2), torch.cat([state["seen"].bool(), exist], 1)

    def _mask(self, seen: Tensor, resets: Tensor | None, length: int) -> tuple[Tensor, Tensor]:
        """The tokens (B, 1, T, S + T) that each new token sees, and the tokens (B, S + T) that the next token sees."""
        total = seen.shape[1]
        key = torch.arange(total, device=seen.device)  # (S + T,)
        query = key[total - length :, None]  # (T, 1)
        mask = key <= query  # (T, S + T)
        if self.spec.window is not None:
            mask = mask & (key > query - self.spec.window)
        mask = mask & seen.unsqueeze(1)  # (B, T, S + T)
        if resets is not None:
            # Two tokens are in one document if the same number of resets comes before them.
            count = F.pad(resets.long().cumsum(1), (total - length, 0))  # (B, S + T)
            mask = mask & (count[:, total - length :, None] == count[:, None, :])
            seen = seen & (count == count[:, -1:])
        return mask.unsqueeze(1), seen

    def _kept(self, memory: Tensor, seen: Tensor) -> LayerState:
        """The state: unseen tokens are zero, and tokens that no later token can see are dropped."""
        total, window = memory.shape[2], self.spec.window
        start = 0 if window is None else max(0, total - window + 1)
        memory, seen = memory[:, :, start:], seen[:, start:]
        return {"memory": memory.masked_fill(~seen[:, None, :, None, None], 0.0), "seen": seen.clone()}
