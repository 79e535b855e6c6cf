"""The coefficients A_t, b_t and C_t of a layer's recurrence (bn eq. 1), and how scans have them in their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from ssm_kernels import observe
from torch import Tensor

from ssm.models.mixers.parts import upcast
from ssm.models.sublayer import Sublayer

Calls = list[tuple[str, Any, Any]]  # (operation, its Inputs, its Options) of every scan, in order


@dataclass(frozen=True)
class Coefficients:
    """h_t = A_t h_{t-1} + b_t with b_t = key_t value_t^T, y_t = Re(C_t^T h_t), by head.

    Heads as in bn eq. 1: the channels of Mamba, S4D, DSS and RG-LRU; every state of S5. A dimension of size 1
    broadcasts: B and T of a constant decay, H of a key that all heads share. RetNet's keys and readouts are rotated by
    their position in the sequence.
    """

    A: Tensor  # decays, or weights of a running average (RWKV-4), (B, T, H, N), real or complex
    key: Tensor  # (B, T, H, N)
    value: Tensor  # (B, T, H, P)
    C: Tensor | None = None  # readouts of each head, (B, T, H, N); None: the readout is a ratio (RWKV-4)
    bonus: Tensor | None = None  # RWKV-6: u (H, N); step t reads h_{t-1} + u b_t
    normalizer_eps: float | None = None  # linear attention: y_t is divided by the sum of its weights plus this number
    bare_key: Tensor | None = None  # Mamba, S4D: the key without a step size that depends on the token, (B, T, H, N)

    @property
    def b(self) -> Tensor:
        """b_t, with the step size Delta_t in it: (B, T, H, N, P)."""
        return self.key.unsqueeze(-1) * self.value.unsqueeze(-2)

    @property
    def bare_b(self) -> Tensor:
        """bn's b_t(x_t): `b` without a step size that depends on the token."""
        return self.b if self.bare_key is None else self.bare_key.unsqueeze(-1) * self.value.unsqueeze(-2)

    def states(self) -> Tensor:
        """h_t for every t, (B, T, H, N, P), computed step by step from the zero state."""
        b = self.b
        h = torch.zeros_like(b[:, 0])  # (B, H, N, P)
        decays = self.A.expand(*b.shape[:-1]).unsqueeze(-1)  # (B, T, H, N, 1)
        states = []
        for A_t, b_t in zip(decays.unbind(1), b.unbind(1), strict=True):
            h = A_t * h + b_t
            states.append(h)
        return torch.stack(states, 1)


def scans_of(mixer: Sublayer, u: Tensor) -> Calls:
    """The scans that a mixer runs on these inputs from the zero state."""
    calls: Calls = []
    with observe(lambda *call: calls.append(call)):
        mixer(u)
    return [call for call in calls if call[0].endswith("_scan")]


def _gated(inputs: Any, options: Any) -> Coefficients:
    H = inputs.v.shape[2]
    q, k = (upcast(x).repeat_interleave(H // x.shape[2], 2) for x in (inputs.q, inputs.k))  # (B, T, H, N)
    log_decay = inputs.log_decay
    if log_decay is None:
        A = k.new_ones(1, 1, 1, 1)
    elif log_decay.dim() == 1:
        A = log_decay.exp().view(1, 1, H, 1)
    else:
        A = log_decay.exp() if log_decay.dim() == 4 else log_decay.exp().unsqueeze(-1)
    return Coefficients(A.expand(-1, -1, H, k.shape[-1]), k, upcast(inputs.v), q, inputs.bonus)


def _selective(inputs: Any, options: Any) -> Coefficients:
    """A_t = exp(delta_t A), b_t = delta_t B_t u_t."""
    delta = upcast(inputs.dt) if inputs.dt_bias is None else upcast(inputs.dt) + inputs.dt_bias  # (B, T, D)
    delta = (F.softplus(delta, threshold=50.0) if options.dt_softplus else delta).unsqueeze(-1)  # (B, T, D, 1)
    forgets = torch.isneginf(inputs.A)  # (D, N): the decay is exactly 0
    A = (delta * inputs.A.masked_fill(forgets, 0.0)).exp().masked_fill(forgets, 0.0)
    B, C = (upcast(part).unsqueeze(2) for part in (inputs.B, inputs.C))  # (B, T, 1, N)
    return Coefficients(A, delta * B, upcast(inputs.u).unsqueeze(-1), C, bare_key=B)


def _diagonal(inputs: Any, options: Any) -> Coefficients:
    """Every state is a head, and its own readout. What the layer does with it, such as S5's C, is not included."""
    a, b = inputs.a, inputs.b.unsqueeze(-1)  # (B, T, H, 1)
    a = a.view(1, 1, -1, 1) if a.dim() == 1 else a.unsqueeze(-1)
    one = torch.ones_like(b[:1, :1])
    return Coefficients(a, one, b, one)


# Operation -> the coefficients of one of its scans. The delta rule has none: its A_t is a matrix.
OF_SCAN: dict[str, Callable[[Any, Any], Coefficients]] = {
    "gated_scan": _gated,
    "selective_scan": _selective,
    "diagonal_scan": _diagonal,
}
