"""Griffin's recurrent block (De et al. 2024, "Griffin: Mixing Gated Linear Recurrences with Local Attention")."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from ssm_kernels import causal_conv1d, diagonal_scan
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import conv_step, inverse_softplus, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.rglru import RglruMixer

SMALLEST = 1e-30  # lower limit of 1 - a^2: the derivative of its square root stays finite for a closed gate


class Rglru(Mixer, kind="rglru"):
    """Two branches, GELU on one, short convolution and RG-LRU on the other; then their product and a projection.

    All inputs are scaled by sqrt(1 - a^2), as in the paper. With `unscaled_start`, the first input of a document is not
    scaled if its state is zero, as in the released code. After a state of noise, it is scaled.

    State: "memory" h (B, H, W / H), one row for each block of the gates' matrices, and "conv", the last K - 1 inputs
    (B, K - 1, W). With `unscaled_start` also "begun" (B,) bool: whether any token was read.
    """

    def __init__(self, spec: RglruMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.width = spec.channels(d_model)  # W
        block = self.width // spec.blocks
        self.gate_proj = Linear(d_model, self.width)
        self.in_proj = Linear(d_model, self.width)
        self.conv_weight = nn.Parameter(torch.empty(self.width, spec.d_conv))  # (W, K)
        self.conv_bias = nn.Parameter(torch.zeros(self.width))
        if spec.decay == "input_dependent":
            self.recurrence_weight = nn.Parameter(torch.empty(spec.blocks, block, block))  # W_a, transposed
        self.recurrence_bias = nn.Parameter(torch.zeros(spec.blocks, block))
        self.input_weight = nn.Parameter(torch.empty(spec.blocks, block, block))  # W_x, transposed
        self.input_bias = nn.Parameter(torch.zeros(spec.blocks, block))
        self.Lambda = nn.Parameter(torch.empty(self.width))  # a = exp(-softplus(Lambda))
        self.out_proj = Linear(self.width, d_model)
        self._initialize()

    def _initialize(self) -> None:
        """a^c is uniform (Section 2.4). Linear maps use LeCun's normal, the output map with 2 / L of its variance.

        So does the convolution. The released code divides its standard deviation by 10.
        """
        for linear, gain in ((self.gate_proj, 1.0), (self.in_proj, 1.0), (self.out_proj, 2 / self.n_layers)):
            nn.init.normal_(linear.weight, std=math.sqrt(gain / linear.in_features))
            nn.init.zeros_(linear.bias)
        nn.init.normal_(self.conv_weight, std=1 / math.sqrt(self.spec.d_conv))
        if self.spec.decay == "input_dependent":
            nn.init.normal_(self.recurrence_weight, std=1 / math.sqrt(self.recurrence_weight.shape[1]))
        nn.init.normal_(self.input_weight, std=1 / math.sqrt(self.input_weight.shape[1]))
        decay = torch.empty(self.width).uniform_(*self.spec.a_range)  # a^c
        with torch.no_grad():
            self.Lambda.copy_(inverse_softplus(-decay.log() / self.spec.c))

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        conv, memory = (None, None) if state is None else (state["conv"], state["memory"].flatten(1))
        x, conv = causal_conv1d(self.in_proj(u), self.conv_weight, self.conv_bias, conv, resets=resets)
        log_a, scaled = self._gated(x, self._starts(u, state, resets))  # (B, T, W)
        h, memory = diagonal_scan(log_a.exp(), scaled, memory, resets=resets)
        return self._finish(h, u), self._ended(memory, conv)

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t x_t) (eq. 4)."""
        last = None if state is None else state["conv"]
        x, conv = conv_step(self.in_proj(u), self.conv_weight, self.conv_bias, last)  # (B, W)
        starts = self._starts(u.unsqueeze(1), state, None)
        log_a, h = self._gated(x.to(u.dtype), None if starts is None else starts.squeeze(1))
        if state is not None:
            h = h + log_a.exp() * state["memory"].flatten(1)
        return self._finish(h, u), self._ended(h, conv)

    def _starts(self, u: Tensor, state: LayerState | None, resets: Tensor | None) -> Tensor | None:
        """Which tokens of u (B, T, D) begin a document from a state of zero, (B, T) bool; None: not needed."""
        if not self.spec.unscaled_start:
            return None
        starts = torch.zeros(u.shape[:2], dtype=torch.bool, device=u.device) if resets is None else resets.clone()
        # A state of noise has read no token, but it is not zero.
        starts[:, 0] |= True if state is None else ~state["begun"].bool() & (state["memory"] == 0).flatten(1).all(1)
        return starts

    def _ended(self, memory: Tensor, conv: Tensor) -> LayerState:
        """The state, from h (B, W) and the last inputs of the convolution."""
        ended = {"memory": memory.unflatten(-1, (self.spec.blocks, -1)), "conv": conv}
        if self.spec.unscaled_start:
            ended["begun"] = torch.ones(memory.shape[0], dtype=torch.bool, device=memory.device)
        return ended

    def _gated(self, x: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (..., W) -> log a_t and sqrt(1 - a_t^2) i_t x_t (..., W) (eq. 1 to 4); accurate for a_t close to 1.

        Where `starts` (...) is True, i_t x_t is not scaled.
        """
        i = self._gate(x, self.input_weight, self.input_bias)
        if self.spec.decay == "input_dependent":
            r = self._gate(x, self.recurrence_weight, self.recurrence_bias)
        else:
            r = torch.sigmoid(upcast(self.recurrence_bias)).flatten().expand_as(x)
        log_a = -self.spec.c * r * F.softplus(upcast(self.Lambda))
        scale = torch.sqrt(-torch.expm1(2 * log_a).clamp_max(-SMALLEST))
        if starts is not None:
            scale = scale.masked_fill(starts.unsqueeze(-1), 1.0)
        return log_a, scale * i * upcast(x)

    def _gate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        blocks = x.unflatten(-1, bias.shape)  # (..., H, W / H)
        return torch.sigmoid(upcast(torch.einsum("...hi,hij->...hj", blocks, weight)) + bias).flatten(-2)

    def _finish(self, h: Tensor, u: Tensor) -> Tensor:
        return self.out_proj(h.to(u.dtype) * F.gelu(self.gate_proj(u), approximate="tanh"))
