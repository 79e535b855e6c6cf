"""The spec of S5."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear


class S5Mixer(MixerSpecBase):
    """S5 (Smith, Warrington & Linderman 2023, "Simplified State Space Layers for Sequence Modeling")."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="S5",
        paper="Smith et al. 2023",
        scan="diagonal_scan",
        decay="by state",
        complex=True,
        recurrence=(
            r"$h_t = \exp(\Delta A) h_{t-1}$",
            r"$\quad + A^{-1} (\exp(\Delta A) - 1) B x_t$",
            r"$y_t = 2 \, \mathrm{Re}(C h_t)$",
            r"$x_t$ and $y_t$ vectors",
        ),
    )
    has_map: ClassVar[bool] = False  # its readout mixes heads
    kind: Literal["s5"] = "s5"
    d_state: PositiveInt = 256  # P, states shared by all channels: P / 2 complex numbers and their conjugates
    blocks: PositiveInt = 8  # J, blocks of HiPPO-N on the diagonal of A at initialization, with P / J states each
    discretization: Literal["zoh", "bilinear"] = "zoh"  # how A and B are discretized; `zoh`: zero-order hold
    dt_range: Range = (1e-3, 0.1)  # dt of each state at initialization, log-uniform

    @model_validator(mode="after")
    def _conjugate_pairs_in_blocks(self) -> S5Mixer:
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

    def activation_memory(self, d_model: int) -> ActivationMemory:
        # Complex inputs and states of the scan, and a gradient of one of them; y, GELU and its gate.
        return ActivationMemory(3 * d_model + 3 * self.d_state, bfloat16=1.0)
