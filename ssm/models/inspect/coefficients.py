"""The coefficients A_t, b_t and C_t of a layer's recurrence (bn eq. 1), from the inputs of its scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from ssm_kernels import observe
from torch import Tensor

from ssm.models.mixers.base import Mixer
from ssm.models.mixers.linear_attention import LinearAttention
from ssm.models.mixers.mamba2 import Mamba2
from ssm.models.mixers.parts import wide
from ssm.models.state import LayerState

Calls = list[tuple[str, Any, Any]]  # (operation, its Inputs, its Options) of every scan, in order


@dataclass(frozen=True)
class Coefficients:
    """h_t = A_t h_{t-1} + b_t with b_t = key_t value_t^T, y_t = Re(C_t^T h_t), by head.

    Heads as in bn eq. 1: the channels of Mamba, S4D, DSS and RG-LRU; every state of S5. A dimension of size 1
    broadcasts: B and T of a constant decay, H of a key that all heads share. RetNet's keys and readouts are rotated by
    their position in the sequence.
    """

    A: Tensor  # decays, (B, T, H, N), real or complex
    key: Tensor  # (B, T, H, N)
    value: Tensor  # (B, T, H, P)
    C: Tensor | None = None  # readouts, (B, T, H, N); None: the readout mixes heads (S5) or is a ratio (RWKV-4)
    bonus: Tensor | None = None  # RWKV-6: u (H, N); step t reads h_{t-1} + u b_t
    normalizer_eps: float | None = None  # linear attention: y_t is divided by the sum of its weights plus this number
    bare_key: Tensor | None = None  # Mamba, S4D: the key without a step size that depends on the token, (B, T, H, N)
    averages: bool = False  # RWKV-4: A and the key are weights of a running average, so A is not a decay (A_1 is 0)

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


@torch.no_grad()
def coefficients(
    mixer: Mixer, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None
) -> Coefficients:
    """The coefficients of one layer's recurrence on these inputs.

    Args:
        mixer: a layer's mixer.
        u: its inputs (after the block's norm), (B, T, D).
        state: the initial state. Because of a short convolution or a token shift, b_t can depend on it.
        resets: (B, T) bool; True resets the state before step t: A_t is 0.

    Raises:
        ValueError: the mixer is not a linear recurrence (GRU, softmax attention), or its A_t is a matrix (delta rule).
    """
    if isinstance(mixer, Mamba2):
        recurrence = _mamba2(mixer, u, state, resets)
    elif mixer.spec.kind in ("s4d", "dss", "h3"):
        recurrence = _systems(mixer, u, state, resets)
    else:
        scans = [call for call in scans_of(mixer, u, state, resets) if call[0] in READ]
        if not scans:
            raise ValueError(f"a mixer of kind '{mixer.spec.kind}' has no diagonal linear recurrence: no coefficients")
        recurrence = _rwkv4(scans) if mixer.spec.kind == "rwkv4" else READ[scans[0][0]](mixer, scans)
    if resets is None:
        return recurrence
    A = recurrence.A.expand(*u.shape[:2], *recurrence.A.shape[2:]).masked_fill(resets[..., None, None], 0.0)
    return replace(recurrence, A=A)


def scans_of(mixer: Mixer, u: Tensor, state: LayerState | None, resets: Tensor | None) -> Calls:
    """The scans that a mixer runs on these inputs."""
    calls: Calls = []
    with observe(lambda *call: calls.append(call)):
        mixer(u, state, resets)
    return [call for call in calls if call[0].endswith("_scan")]


def _gated(mixer: Mixer, calls: Calls) -> Coefficients:
    inputs = calls[0][1]
    H = inputs.v.shape[2]
    q, k = (wide(x).repeat_interleave(H // x.shape[2], 2) for x in (inputs.q, inputs.k))  # (B, T, H, N)
    log_decay = inputs.log_decay
    if log_decay is None:
        A = k.new_ones(1, 1, 1, 1)
    elif log_decay.dim() == 1:
        A = log_decay.exp().view(1, 1, H, 1)
    else:
        A = log_decay.exp() if log_decay.dim() == 4 else log_decay.exp().unsqueeze(-1)
    eps = mixer.eps if isinstance(mixer, LinearAttention) and mixer.spec.normalizer else None
    return Coefficients(A.expand(-1, -1, H, k.shape[-1]), k, wide(inputs.v), q, inputs.bonus, eps)


def _mamba2(mixer: Mamba2, u: Tensor, state: LayerState | None, resets: Tensor | None) -> Coefficients:
    """A_t = exp(dt_t A), b_t = dt_t B_t x_t^T. The scan gets dt_t x_t, but mi's map uses dt_t B_t (eq. 5 and 8)."""
    _, x, B, C, dt, _ = mixer.project(u, state, resets)
    shared = mixer.heads // mixer.spec.n_groups  # heads that read one group
    B, C = (wide(part).repeat_interleave(shared, 2) for part in (B, C))  # (B, T, H, N)
    dt = dt.unsqueeze(-1)  # (B, T, H, 1)
    A = (dt * mixer.continuous_decay().unsqueeze(-1)).exp()
    return Coefficients(A.expand_as(B), dt * B, wide(x), C, bare_key=B)


def _selective(mixer: Mixer, calls: Calls) -> Coefficients:
    """A_t = exp(delta_t A), b_t = delta_t B_t u_t."""
    inputs, options = calls[0][1:]
    delta = wide(inputs.dt) if inputs.dt_bias is None else wide(inputs.dt) + inputs.dt_bias  # (B, T, D)
    delta = (F.softplus(delta, threshold=50.0) if options.dt_softplus else delta).unsqueeze(-1)  # (B, T, D, 1)
    forgets = torch.isneginf(inputs.A)  # (D, N): the decay is exactly 0
    A = (delta * inputs.A.masked_fill(forgets, 0.0)).exp().masked_fill(forgets, 0.0)
    B, C = (wide(part).unsqueeze(2) for part in (inputs.B, inputs.C))  # (B, T, 1, N)
    return Coefficients(A, delta * B, wide(inputs.u).unsqueeze(-1), C, bare_key=B)


def _diagonal(mixer: Mixer, calls: Calls) -> Coefficients:
    """S5 and RG-LRU: every state is a head."""
    a, b = calls[0][1].a, calls[0][1].b.unsqueeze(-1)  # (B, T, H, 1)
    a = a.view(1, 1, -1, 1) if a.dim() == 1 else a.unsqueeze(-1)
    one = torch.ones_like(b[:1, :1])
    return Coefficients(a, one, b, one if mixer.spec.kind == "rglru" else None)


def _systems(mixer: Any, u: Tensor, state: LayerState | None, resets: Tensor | None) -> Coefficients:
    """S4D, DSS, H3: a system for each head. H3's values are products of keys and values."""
    if mixer.spec.kind == "h3":
        system, values = mixer.system(), mixer.products(u, state, resets)[0]
    else:
        system, values = mixer.system_of(u), wide(u).unsqueeze(-1)
    a, b, c = (weight if weight.dim() == 4 else weight[None, None] for weight in system)  # (B, T, H, N) or (1, 1, H, N)
    bare_key = torch.view_as_complex(wide(mixer.B))[None, None] if system[0].dim() == 4 else None
    return Coefficients(a, b, values, c, bare_key=bare_key)


def _rwkv4(calls: Calls) -> Coefficients:
    """bn Appendix B: h_t is the average of the values so far, with weights A_t of h_{t-1} and 1 - A_t of the value."""
    denominators, numerators = calls[0][1], calls[1][1]
    weight, total = denominators.b, []
    den = torch.zeros_like(weight[:, 0]) if denominators.h0 is None else denominators.h0
    for decay, new in zip(denominators.a.unbind(1), weight.unbind(1), strict=True):
        den = decay * den + new
        total.append(den)
    share = (weight / torch.stack(total, 1)).unsqueeze(-1)  # (B, T, D, 1)
    value = torch.where(weight > 0, numerators.b / weight, 0.0)  # a value with weight 0 cannot be recovered
    return Coefficients(1 - share, share, value.unsqueeze(-1), averages=True)


READ: dict[str, Callable[[Mixer, Calls], Coefficients]] = {
    "gated_scan": _gated,
    "selective_scan": _selective,
    "diagonal_scan": _diagonal,
}
