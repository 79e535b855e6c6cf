"""RWKV-4's time mixing (Peng et al. 2023, "RWKV: Reinventing RNNs for the Transformer Era")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import diagonal_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.coefficients import Coefficients, scans_of
from ssm.models.mixers.parts import shifted, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.rwkv4 import Rwkv4Mixer

EMPTY = -1e30  # logarithm of the weight 0; finite, so that differences are finite


class Rwkv4(Mixer, kind="rwkv4"):
    """Token shift, average of all values so far with decaying weights, and a gate (Section 3.1).

    The average is num_t / den_t with num_t = e^-w num_{t-1} + e^{k_t} v_t and den_t = e^-w den_{t-1} + e^{k_t}. Both
    can overflow, so they are multiplied by e^-m_t with the running maximum m_t = max(m_{t-1} - w, k_t). Two diagonal
    scans compute them. Their decays e^{m_{t-1} - w - m_t} and weights e^{k_t - m_t} are at most 1. The maximum changes
    only the rounding, so it needs no gradient.

    State: "shift", the last token's input (B, D), and "memory" (B, 2 D, 1). The first half of the memory are the
    averages num / den of all channels (h_t in bn Appendix B), the second half are their weights log(1 + den). The two
    have different scales. As separate heads, each has its own moments and noise. They do not depend on m, and have the
    scales of v and k. Any numbers are a valid state: a negative weight counts as 0, and zeros are the empty state. In
    float32, den below 1e-38 counts as 0.
    """

    def __init__(self, spec: Rwkv4Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        D = d_model
        self.time_decay = nn.Parameter(torch.empty(D))  # log w
        self.time_first = nn.Parameter(torch.empty(D))  # u
        self.mix_key = nn.Parameter(torch.empty(D))
        self.mix_value = nn.Parameter(torch.empty(D))
        self.mix_receptance = nn.Parameter(torch.empty(D))
        self.key = Linear(D, D, bias=False)
        self.value = Linear(D, D, bias=False)
        self.receptance = Linear(D, D, bias=False)
        self.out_proj = Linear(D, D, bias=False)
        nn.init.orthogonal_(self.value.weight)
        for linear in (self.key, self.receptance, self.out_proj):
            nn.init.zeros_(linear.weight)

    def initialize_at(self, layer: int) -> None:
        """Appendix E: decays and mixing vary between channels, more unevenly in later layers."""
        D = self.d_model
        depth = layer / max(self.n_layers - 1, 1)  # 0 to 1
        rest = 1 - layer / self.n_layers  # 1 to almost 0
        channel = torch.arange(D, device=self.time_decay.device)
        with torch.no_grad():
            self.time_decay.copy_(-5 + 8 * (channel / max(D - 1, 1)) ** (0.7 + 1.3 * depth))
            self.time_first.copy_(math.log(0.3) + 0.5 * ((channel + 1) % 3 - 1))
            self.mix_key.copy_((channel / D) ** rest)
            self.mix_value.copy_((channel / D) ** rest + 0.3 * depth)
            self.mix_receptance.copy_((channel / D) ** (0.5 * rest))

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        before, last = shifted(u, None if state is None else state["shift"], resets)
        r, k, v = self._project(u, before)  # (B, T, D)
        w, bonus = upcast(self.time_decay).exp(), upcast(self.time_first)
        num0, den0, m0 = _unpacked(k[:, 0], state)  # (B, D)
        m = _running_maximum(k.detach(), w.detach(), m0, resets)
        m_before = torch.cat([m0.unsqueeze(1), m[:, :-1]], 1)
        if resets is not None:
            m_before = m_before.masked_fill(resets.unsqueeze(-1), EMPTY)  # decay 0: earlier tokens have no weight

        decay, weight = (m_before - w - m).exp(), (k - m).exp()
        den, den_T = diagonal_scan(decay, weight, den0)
        num, num_T = diagonal_scan(decay, weight * v, num0)
        num = torch.cat([num0.unsqueeze(1), num[:, :-1]], 1)  # before each step
        den = torch.cat([den0.unsqueeze(1), den[:, :-1]], 1)
        y = _average(num, den, m_before, k + bonus, v)
        return self.out_proj((r * y).to(u.dtype)), {"memory": _packed(num_T, den_T, m[:, -1]), "shift": last}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """The recurrence of Appendix D, with the running maximum."""
        r, k, v = self._project(u, torch.zeros_like(u) if state is None else state["shift"].to(u.dtype))  # (B, D)
        w, bonus = upcast(self.time_decay).exp(), upcast(self.time_first)
        num, den, m = _unpacked(k, state)
        y = _average(num, den, m, k + bonus, v)
        after = torch.maximum(m - w, k).detach()
        decay, weight = (m - w - after).exp(), (k - after).exp()
        memory = _packed(decay * num + weight * v, decay * den + weight, after)
        return self.out_proj((r * y).to(u.dtype)), {"memory": memory, "shift": u}

    def coefficients(self, u: Tensor) -> Coefficients:
        """The average of the values so far, with weights A_t of h_{t-1} and 1 - A_t of the value (bn Appendix B)."""
        (_, denominators, _), (_, numerators, _) = scans_of(self, u)
        weight, total = denominators.b, []
        den = torch.zeros_like(weight[:, 0])
        for decay, new in zip(denominators.a.unbind(1), weight.unbind(1), strict=True):
            den = decay * den + new
            total.append(den)
        share = (weight / torch.stack(total, 1)).unsqueeze(-1)  # (B, T, D, 1)
        value = torch.where(weight > 0, numerators.b / weight, 0.0)  # a value with weight 0 cannot be recovered
        return Coefficients(1 - share, share, value.unsqueeze(-1))

    def faded(self, state: LayerState, factor: float) -> LayerState:
        """As `Mixer.faded`: num and den keep the same share. So the averages stay, and log(1 + den) changes."""
        average, weight = state["memory"].chunk(2, 1)  # (B, D, 1)
        rest = torch.full_like(weight, math.log1p(-factor))
        fading = torch.logaddexp(weight + math.log(factor), rest)  # log(1 + factor den)
        return state | {"memory": torch.cat([average, torch.where(weight > 0, fading, 0.0)], 1)}

    def _project(self, u: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """r after its sigmoid, k and v, from tokens u and the tokens before them (..., D)."""
        mixes = (self.mix_receptance, self.mix_key, self.mix_value)
        r, k, v = (torch.lerp(before, u, mix.to(u.dtype)) for mix in mixes)
        return torch.sigmoid(upcast(self.receptance(r))), upcast(self.key(k)), upcast(self.value(v))


def _average(num: Tensor, den: Tensor, m: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(num e^m + e^k v) / (den e^m + e^k)."""
    top = torch.maximum(m, k).detach()
    past, present = (m - top).exp(), (k - top).exp()
    return (past * num + present * v) / (past * den + present)


def _running_maximum(k: Tensor, w: Tensor, m0: Tensor, resets: Tensor | None) -> Tensor:
    """m_t = max(m_{t-1} - w, k_t), (B, T, D), from m_0 (B, D), without tokens before a reset.

    Each iteration doubles the number of earlier steps that m_t includes.
    """
    m = torch.cat([m0.unsqueeze(1), k], 1)  # (B, T + 1, D)
    document = None if resets is None else F.pad(resets.cumsum(1), (1, 0))  # (B, T + 1)
    reach = 1
    while reach < m.shape[1]:
        earlier = m[:, :-reach] - reach * w
        if document is not None:
            earlier = earlier.masked_fill((document[:, :-reach] != document[:, reach:]).unsqueeze(-1), EMPTY)
        m = torch.cat([m[:, :reach], torch.maximum(m[:, reach:], earlier)], 1)
        reach *= 2
    return m[:, 1:]


def _packed(num: Tensor, den: Tensor, m: Tensor) -> Tensor:
    """The memory (B, 2 D, 1): num / den and log(1 + den e^m)."""
    total = m + den.log()
    return torch.cat([num / den, torch.logaddexp(total, torch.zeros_like(total))], 1).unsqueeze(-1)


def _unpacked(like: Tensor, state: LayerState | None) -> tuple[Tensor, Tensor, Tensor]:
    """num, den, m (B, D) of a state; den is 1, or 0 for an empty state. Gradients flow through num and den."""
    average, weight = like.new_zeros(2, *like.shape) if state is None else state["memory"].squeeze(-1).chunk(2, 1)
    weight = weight.clamp_min(0.0)
    fraction = -torch.expm1(-weight)  # e^weight - 1 = fraction e^weight
    m = (weight + fraction.log()).detach().clamp_min(EMPTY)
    den = fraction * torch.where(weight > 0, weight - m, weight).exp()
    return average * den, den, m
