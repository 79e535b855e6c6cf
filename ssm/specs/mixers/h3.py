"""The spec of H3."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, activation_memory_of_segments
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear


class H3Mixer(MixerSpecBase):
    """H3 (Fu et al. 2023, "Hungry Hungry Hippos: Towards Language Modeling with State Space Models", Algorithm 1)."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="H3",
        paper="Fu et al. 2023",
        scan="diagonal_scan",
        decay="by channel and state",
        complex=True,
        recurrence=(
            r"$h_t = \exp(\Delta A) h_{t-1}$",
            r"$\quad + A^{-1} (\exp(\Delta A) - 1) B \, \mathrm{shift}(k_t) v_t$",
            r"$y_t = q_t \, 2 \, \mathrm{Re}(C^T h_t)$",
        ),
    )
    kind: Literal["h3"] = "h3"
    # N, states of the diagonal SSM: N / 2 complex numbers and their conjugates
    d_state: Annotated[int, Field(gt=0, multiple_of=2)] = 64
    d_shift: PositiveInt = 64  # number of tokens that the shift SSM on the keys covers
    head_dim: PositiveInt = 1  # dimensions of keys and values; the state of a head has head_dim^2 products
    discretization: Literal["zoh", "bilinear"] = "zoh"  # how A and B are discretized; `zoh`: zero-order hold
    dt_range: Range = (1e-3, 0.1)  # dt of each head at initialization, log-uniform
    segment: PositiveInt = 32  # L, tokens between saved states; changes speed and memory, not the result

    def check(self, d_model: int) -> None:
        if d_model % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide d_model {d_model}")

    @property
    def receptive_field(self) -> int:
        return self.d_shift

    def heads(self, d_model: int) -> int:
        return d_model // self.head_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.head_dim, self.head_dim, self.d_state // 2, 2)

    def parameters(self, d_model: int) -> int:
        D, H, N = d_model, self.heads(d_model), self.d_state
        shift = D * (self.d_shift + 1)  # C and D of the shift SSM
        system = H * (3 * N + 2)  # A, B and C, each N / 2 complex numbers; dt and D
        return 4 * linear(D, D, bias=True) + shift + system  # q, k, v, output

    def input_numbers(self, d_model: int) -> int:
        return last_inputs(d_model, self.d_shift)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return activation_memory_of_segments(9 * d_model, self.recurrent_state_numbers(d_model), self.segment, 0.2)
