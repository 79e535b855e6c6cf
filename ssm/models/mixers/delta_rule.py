"""The base class of DeltaNet, Gated DeltaNet and Kimi Delta Attention, which differ in decay and gate."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, delta_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import conv_init, conv_step, l2_norm, rms_head_norm, scaled_xavier_init, upcast
from ssm.models.state import LayerOutput, LayerState


class DeltaRule(Mixer):
    """Input projection, short convolutions with SiLU on q, k and v, unit q and k, delta rule, norm by head.

    State: "memory" S (B, H, K, V) and "conv", the convolutions' last inputs (B, d_conv - 1, 2 G K + H V).
    """

    def __init__(self, spec: Any, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.key_dim, self.value_dim = spec.state_shape(d_model)  # H, K, V
        keys, values = spec.key_heads * self.key_dim, self.heads * self.value_dim
        self.convolved = [keys, keys, values]
        self.sizes = [sum(self.convolved), self.heads, *spec.extra(d_model)]
        self.in_proj = Linear(d_model, sum(self.sizes), bias=False)  # q, k, v; beta; inputs of decay and gate
        self.conv_weight = nn.Parameter(torch.empty(sum(self.convolved), spec.d_conv))
        self.norm_weight = nn.Parameter(torch.ones(self.value_dim))  # shared by the heads
        self.out_proj = Linear(values, d_model, bias=False)
        for weight in (*self.in_proj.weight.split([*self.convolved, *self.sizes[1:]]), self.out_proj.weight):
            scaled_xavier_init(weight)
        conv_init(self.conv_weight)

    @abstractmethod
    def _log_decay(self, *extra: Tensor) -> Tensor | None:
        """log alpha, (..., H) or (..., H, K); None: no decay. `extra`: the parts of the input projection after beta."""

    @abstractmethod
    def _gated(self, y: Tensor, *extra: Tensor) -> Tensor:
        """The normalized outputs y (..., H V), multiplied by the gate."""

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        memory, conv = (None, None) if state is None else (state["memory"], state["conv"])
        qkv, beta, *extra = self.in_proj(u).split(self.sizes, -1)
        qkv, conv = causal_conv1d(qkv, self.conv_weight, None, conv, resets=resets, activation="silu")
        q, k, v = self._by_head(qkv)  # (B, T, G, K), (B, T, G, K), (B, T, H, V)
        y, memory = delta_scan(
            q, k, v, self._beta(beta), self._log_decay(*extra), memory, resets=resets, chunk=self.spec.chunk
        )  # (B, T, H, V)
        return self._finish(y, extra, u), {"memory": memory, "conv": conv}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """S = diag(alpha_t) S_{t-1}, S_t = S + beta_t k_t (v_t - S^T k_t)^T, y_t = q_t^T S_t."""
        qkv, beta, *extra = self.in_proj(u).split(self.sizes, -1)
        qkv, conv = conv_step(qkv, self.conv_weight, None, None if state is None else state["conv"])
        q, k, v = self._by_head(F.silu(qkv))
        q, k = (x.repeat_interleave(self.heads // self.spec.key_heads, 1) for x in (q, k))  # (B, H, K)
        added = self._beta(beta).unsqueeze(-1) * k  # (B, H, K)
        if state is None:
            memory = added.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
        else:
            log_decay, memory = self._log_decay(*extra), state["memory"]
            if log_decay is not None:
                memory = log_decay.exp().view(*log_decay.shape[:2], -1, 1) * memory
            new = v - (k.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
            memory = memory + added.unsqueeze(-1) * new.unsqueeze(-2)
        y = (q.unsqueeze(-1) * memory).sum(-2)  # (B, H, V)
        return self._finish(y, extra, u), {"memory": memory, "conv": conv}

    def _by_head(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q / sqrt(K) and k (..., G, K) with unit q and k, and v (..., H, V)."""
        q, k, v = qkv.split(self.convolved, -1)
        q, k = (l2_norm(x.unflatten(-1, (-1, self.key_dim))) for x in (q, k))
        return q * self.key_dim**-0.5, k, upcast(v).unflatten(-1, (self.heads, -1))

    def _beta(self, beta: Tensor) -> Tensor:
        """beta (..., H), in float32 also under autocast."""
        beta = upcast(beta).sigmoid()
        return 2 * beta if self.spec.negative_eigenvalues else beta

    def _finish(self, y: Tensor, extra: list[Tensor], u: Tensor) -> Tensor:
        y = rms_head_norm(y, self.norm_weight, self.spec.norm_eps)  # (..., H, V)
        return self.out_proj(self._gated(y.flatten(-2), *extra).to(u.dtype))
