"""S5's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, check_range
from ssm.specs.part import Kept, linear


class S5Mixer(MixerSpecBase):
    """S5 (Smith, Warrington & Linderman 2023, "Simplified State Space Layers for Sequence Modeling")."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="S5",
        paper="Smith et al. 2023",
        scan="diagonal_scan",
        decay="by state",
        complex=True,
        recurrence="h_t = exp(dt A) h_{t-1} + A^-1 (exp(dt A) - 1) B x_t,  y_t = 2 Re(C h_t),  x_t and y_t vectors",
    )
    kind: Literal["s5"] = "s5"
    d_state: PositiveInt = 256  # P; P / 2 complex states, each for itself and its conjugate, shared by all channels
    blocks: PositiveInt = 8  # J blocks of HiPPO-N on the diagonal of A at initialization, each of P / J states
    discretization: Literal["zoh", "bilinear"] = "zoh"
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform by state

    @model_validator(mode="after")
    def _sane(self) -> S5Mixer:
        check_range("dt_range", self.dt_range)
        if self.d_state % (2 * self.blocks):
            raise ValueError(f"d_state must be a multiple of 2 * blocks = {2 * self.blocks}, got {self.d_state}")
        return self

    def heads(self, d_model: int) -> int:
        return 1  # one state for all channels

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (1, self.d_state // 2, 2)

    def parameters(self, d_model: int) -> int:
        D, P = d_model, self.d_state
        system = 3 * P // 2 + 2 * P * D + D  # A and dt; B and C, each P / 2 complex numbers by channel; D
        return system + linear(D, D, bias=True)  # the gate

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.memory_numbers(d_model)

    def kept(self, d_model: int) -> Kept:
        # The inputs of the scan and its states, complex, and the states as they are read out; y, GELU and its gate.
        return Kept(3 * d_model + 4 * self.d_state, bfloat16=1.0)
