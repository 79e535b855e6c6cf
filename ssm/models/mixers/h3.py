"""H3 (Fu et al. 2023, "Hungry Hungry Hippos: Towards Language Modeling with State Space Models")."""

from __future__ import annotations

import math

import torch
from ssm_kernels import causal_conv1d
from torch import Tensor, nn

from ssm.models.linear import Linear
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.mixers.linear_ssm import HeadSystems, coefficients_of, linear_imaginary, scan_systems, step_systems
from ssm.models.mixers.parts import conv_step, upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.h3 import H3Mixer


class H3(HeadSystems, kind="h3"):
    """q * SSM_diagonal(SSM_shift(k) * v) for each head (Algorithm 1), between linear maps.

    The shift SSM keeps the last keys, and its output is a convolution with C. The diagonal SSM is an S4D system for
    each head. Its inputs are all products of an entry of a key and an entry of a value.

    State: "memory" (B, H, P, P, N / 2, 2). Its last axes are keys, values, states, real and imaginary part. "conv" has
    the last d_shift - 1 keys (B, d_shift - 1, D).
    """

    def __init__(self, spec: H3Mixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        D = d_model
        self.split = (spec.heads(D), spec.head_dim)  # H, P
        bound = 1 / math.sqrt(spec.d_shift)
        self.q_proj = Linear(D, D)
        self.k_proj = Linear(D, D)
        self.v_proj = Linear(D, D)
        self.shift_C = nn.Parameter(torch.empty(D, spec.d_shift).uniform_(-bound, bound))  # its last column: lag 0
        self.shift_D = nn.Parameter(torch.randn(D))
        self.make_system(spec.heads(D), linear_imaginary(spec.d_state // 2))
        self.out_proj = Linear(D, D)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        h0 = None if state is None else self._complex(state["memory"])
        products, keys = self.products(u, state, resets)
        y, h = scan_systems(products, *self.system(), h0, resets, self.spec.segment)
        return self._finish(y, products, u), {"memory": self._real(h), "conv": keys}

    def products(self, u: Tensor, state: LayerState | None, resets: Tensor | None) -> tuple[Tensor, Tensor]:
        """The inputs of the diagonal SSM, (B, T, H, P P), and "conv" of the next state."""
        keys = None if state is None else state["conv"]
        shifted, keys = causal_conv1d(self.k_proj(u), self._shift_weight(), None, keys, resets=resets)
        return self._products(shifted, self.v_proj(u)), keys

    def coefficients(self, u: Tensor) -> Coefficients:
        """The values are products of keys and values."""
        return coefficients_of(self.system(), self.products(u, None, None)[0])

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """One step of the shift SSM on k; then one step of the diagonal SSM on its output times v."""
        keys = None if state is None else state["conv"]
        shifted, keys = conv_step(self.k_proj(u), self._shift_weight(), None, keys)  # (B, D)
        products = self._products(shifted, self.v_proj(u))  # (B, H, P P)
        h = None if state is None else self._complex(state["memory"])
        y, h = step_systems(products, *self.system(), h)
        return self._finish(y, products, u), {"memory": self._real(h), "conv": keys}

    def _shift_weight(self) -> Tensor:
        """(D, d_shift): C, plus D for the present key."""
        return torch.cat([self.shift_C[:, :-1], (self.shift_C[:, -1] + self.shift_D).unsqueeze(1)], 1)

    def _products(self, k: Tensor, v: Tensor) -> Tensor:
        """All products of an entry of k and an entry of v in each head: (..., D) and (..., D) -> (..., H, P P)."""
        k, v = (upcast(x).unflatten(-1, self.split) for x in (k, v))  # (..., H, P)
        return (k.unsqueeze(-1) * v.unsqueeze(-2)).flatten(-2)

    def _finish(self, y: Tensor, products: Tensor, u: Tensor) -> Tensor:
        """Skip connection, sum with q over the axis of keys, output projection: (..., H, P P) -> (..., D)."""
        P = self.spec.head_dim
        y = (y + self.D.unsqueeze(-1) * products).unflatten(-1, (P, P))
        q = upcast(self.q_proj(u)).unflatten(-1, self.split)  # (..., H, P)
        return self.out_proj((q.unsqueeze(-1) * y).sum(-2).flatten(-2).to(u.dtype))

    def _complex(self, memory: Tensor) -> Tensor:
        return torch.view_as_complex(memory).flatten(2, 3)  # (B, H, P P, N / 2)

    def _real(self, h: Tensor) -> Tensor:
        P = self.spec.head_dim
        return torch.view_as_real(h.unflatten(2, (P, P)))
