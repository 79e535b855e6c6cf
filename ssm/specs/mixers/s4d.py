"""The spec of S4D."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, activation_memory_of_segments
from ssm.specs.sublayer import ActivationMemory, linear


class S4dMixer(MixerSpecBase):
    """S4D (Gu, Gupta, Goel & Re 2022, "On the Parameterization and Initialization of Diagonal State Space Models")."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="S4D",
        paper="Gu et al. 2022",
        scan="diagonal_scan",
        decay="by channel and state",
        complex=True,
        recurrence=(
            r"$h_t = \exp(\Delta A) h_{t-1}$",
            r"$\quad + A^{-1} (\exp(\Delta A) - 1) B x_t$",
            r"$y_t = 2 \, \mathrm{Re}(C^T h_t)$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset({"decay"})
    kind: Literal["s4d"] = "s4d"
    # N, states of a channel: N / 2 complex numbers and their conjugates
    d_state: Annotated[int, Field(gt=0, multiple_of=2)] = 64
    init: Literal["lin", "inv"] = "lin"  # imaginary parts of A at initialization: S4D-Lin or S4D-Inv
    discretization: Literal["zoh", "bilinear"] = "zoh"  # how A and B are discretized; `zoh`: zero-order hold
    dt_range: Range = (1e-3, 0.1)  # dt of each channel at initialization, log-uniform
    # `input_dependent`: dt, and with it the decay, depends on the token: dt_t = softplus(log dt + W u_t)
    decay: Literal["constant", "input_dependent"] = "constant"
    segment: PositiveInt = 32  # L, tokens between saved states of a constant decay; changes speed and memory only

    def heads(self, d_model: int) -> int:
        return d_model

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (d_model, self.d_state // 2, 2)

    def parameters(self, d_model: int) -> int:
        D, N = d_model, self.d_state
        system = D * (3 * N + 2)  # A, B and C, each N / 2 complex numbers; dt and D
        gate = linear(D, D) if self.decay == "input_dependent" else 0
        return system + gate + linear(D, 2 * D, bias=True)  # output and its gate

    def activation_memory(self, d_model: int) -> ActivationMemory:
        states = self.recurrent_state_numbers(d_model)
        if self.decay == "input_dependent":  # dt A, a, b, b x, h and c h of every token
            return ActivationMemory(6 * (states + d_model), workspace=0.5, bfloat16=1.0)
        return activation_memory_of_segments(6 * d_model, states, self.segment, 0.05)
