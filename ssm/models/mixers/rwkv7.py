"""RWKV-7's time mixing (Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution")."""

from __future__ import annotations

import math

import torch
from ssm_kernels import delta_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import head_norm, l2_norm, shifted, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.rwkv7 import Rwkv7Mixer

NAMES = ("receptance", "decay", "key", "value", "rate", "gate")  # r, w, k, v, a, g: inputs with a token shift
MIX_POWERS = (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)  # exponents of the initial token shifts in the first layer


class Rwkv7(Mixer, kind="rwkv7"):
    """Goose (Section 4): token shift, decays of keys >= exp(-exp(-1/2)), generalized delta rule, bonus, gate.

    Later layers mix `v_first`, the values of the first layer, into their own (`forward_with_v_first`). `forward` runs a
    layer without them.

    State: "memory" S (B, H, K, K) and "shift", the last token's input (B, D).
    """

    def __init__(self, spec: Rwkv7Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.heads, self.head_dim, _ = spec.state_shape(d_model)  # H, K
        D = d_model
        self.shift_mix = nn.Parameter(torch.empty(len(NAMES), D))  # mu
        self.decay_base, self.decay_down, self.decay_up = _low_rank(D, spec.decay_rank)
        self.rate_base, self.rate_down, self.rate_up = _low_rank(D, spec.rate_rank)
        if spec.value_rank is not None:
            self.value_base, self.value_down, self.value_up = _low_rank(D, spec.value_rank)
        _, self.gate_down, self.gate_up = _low_rank(D, spec.gate_rank)
        self.removal = nn.Parameter(torch.empty(D))  # xi: scale of the removed keys
        self.boost = nn.Parameter(torch.full((D,), 1.02))  # alpha: weight of the rate in the added keys
        self.bonus = nn.Parameter(torch.full((self.heads, self.head_dim), -0.04))  # rho
        self.receptance = Linear(D, D, bias=False)
        self.key = Linear(D, D, bias=False)
        self.value = Linear(D, D, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(D))
        self.norm_bias = nn.Parameter(torch.zeros(D))
        self.out_proj = Linear(D, D, bias=False)
        for linear, gain in ((self.receptance, 1.0), (self.value, 1.0), (self.key, 0.1)):
            nn.init.orthogonal_(linear.weight, gain=gain)
        nn.init.zeros_(self.out_proj.weight)

    def initialize_at(self, layer: int) -> None:
        """The authors' initialization: in later layers decays vary more, and the token before has less weight."""
        depth = layer / max(self.n_layers - 1, 1)  # 0 to 1
        rest = 1 - layer / self.n_layers  # 1 to almost 0
        channel = torch.arange(self.d_model, device=self.bonus.device)
        place = channel / max(self.d_model - 1, 1)  # 0 to 1
        middle = (self.head_dim - 1) / 2
        zigzag = (channel % self.head_dim - middle) / max(middle, 0.5)  # -1 to 1 within a head
        zigzag = zigzag * zigzag.abs()
        with torch.no_grad():
            self.shift_mix.copy_(torch.stack([1 - (channel / self.d_model) ** (p * rest) for p in MIX_POWERS]))
            self.decay_base.copy_(-5.5 + 6 * place ** (1 + depth**0.3) + 2.5 * zigzag)
            self.rate_base.copy_(-0.19 + 0.3 * zigzag + 0.4 * (place - 0.5))
            if self.spec.value_rank is not None:
                self.value_base.copy_(0.73 - 0.4 * (place - 0.5))
            self.removal.copy_(0.71 - 0.1 * (place - 0.5))
            self.norm_weight.fill_(((layer + 1) / self.n_layers) ** 0.7)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        return self.forward_with_v_first(u, state, resets, None)[:2]

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        return self.step_with_v_first(u, state, None)[:2]

    def forward_with_v_first(
        self, u: Tensor, state: LayerState | None, resets: Tensor | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor]:
        memory, last = (None, None) if state is None else (state["memory"], state["shift"])
        before, last = shifted(u, last, resets)
        r, log_decay, k, v, kappa, rate, gate, v_first = self._project(u, before, v_first)
        y, memory = delta_scan(
            r, k, v, None, log_decay, memory, a=-kappa, b=kappa * rate, resets=resets, chunk=self.spec.chunk
        )  # (B, T, H, K)
        return self._finish(y, r, k, v, gate, u), {"memory": memory, "shift": last}, v_first

    def step_with_v_first(
        self, u: Tensor, state: LayerState | None, v_first: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor]:
        """S_t = (diag(w_t) - (a_t * kappa_t) kappa_t^T) S_{t-1} + k_t v_t^T, y_t = r_t^T S_t."""
        before = torch.zeros_like(u) if state is None else state["shift"].to(u.dtype)
        r, log_decay, k, v, kappa, rate, gate, v_first = self._project(u, before, v_first)  # (B, H, K)
        memory = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, K)
        if state is not None:
            read = (kappa.unsqueeze(-1) * state["memory"]).sum(-2)  # (B, H, K)
            kept = log_decay.exp().unsqueeze(-1) * state["memory"]
            memory = kept - (kappa * rate).unsqueeze(-1) * read.unsqueeze(-2) + memory
        y = (r.unsqueeze(-1) * memory).sum(-2)  # (B, H, K)
        return self._finish(y, r, k, v, gate, u), {"memory": memory, "shift": u}, v_first

    def _project(self, u: Tensor, before: Tensor, v_first: Tensor | None) -> tuple[Tensor, ...]:
        """r, log w, k, v, kappa and a (..., H, K), the gate (..., D), the first layer's values (..., D).

        Args:
            u, before: tokens and the tokens before them (..., D).
            v_first: the first layer's values (..., D), as in fla; None in the first layer.
        """
        apart = before - u
        r, w, k, v, a, g = (torch.addcmul(u, apart, mix) for mix in self.shift_mix)  # (..., D): lerp
        speed = self.decay_base + upcast(torch.tanh(w @ self.decay_down) @ self.decay_up)
        rate = torch.sigmoid(self.rate_base + upcast((a @ self.rate_down) @ self.rate_up))
        gate = torch.sigmoid(g @ self.gate_down) @ self.gate_up
        r, k, own = upcast(self.receptance(r)), upcast(self.key(k)), upcast(self.value(v))
        mixed = own
        if v_first is not None and self.spec.value_rank is not None:
            mixed = torch.lerp(
                own, v_first, torch.sigmoid(self.value_base + upcast((v @ self.value_down) @ self.value_up))
            )
        log_decay = -math.exp(-0.5) * torch.sigmoid(speed)
        kappa = l2_norm((k * self.removal).unflatten(-1, (self.heads, -1)))
        k = k * (1 + (rate - 1) * self.boost)
        r, log_decay, k, mixed, rate = (x.unflatten(-1, (self.heads, -1)) for x in (r, log_decay, k, mixed, rate))
        return r, log_decay, k, mixed, kappa, rate, gate, own if v_first is None else v_first

    def _finish(self, y: Tensor, r: Tensor, k: Tensor, v: Tensor, gate: Tensor, u: Tensor) -> Tensor:
        """Group norm, bonus of the present token, gate, output projection."""
        y = head_norm(y, self.spec.norm_eps).flatten(-2) * self.norm_weight + self.norm_bias  # (..., D)
        bonus = (r * k * self.bonus).sum(-1, keepdim=True) * v  # (..., H, K)
        return self.out_proj(((y + bonus.flatten(-2)) * upcast(gate)).to(u.dtype))


def _low_rank(width: int, rank: int) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    """The bias (D,) and the two factors (D, R) and (R, D) of a low-rank map, which is initially only the bias."""
    up = torch.empty(rank, width)
    nn.init.orthogonal_(up, gain=0.1 * math.sqrt(max(1.0, rank / width)))
    return nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width, rank)), nn.Parameter(up)
