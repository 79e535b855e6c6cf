"""DSS's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, activation_memory_of_segments, check_range
from ssm.specs.sublayer import ActivationMemory, linear


class DssMixer(MixerSpecBase):
    """DSS-exp (Gupta, Gu & Berant 2022, "Diagonal State Spaces are as Effective as Structured State Spaces").

    The paper's other form, DSS-softmax, divides every state's kernel by its sum over the training length: its weights
    depend on a length, so that it is no recurrence for streams of any length, and is left out.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="DSS",
        paper="Gupta et al. 2022",
        scan="diagonal_scan",
        decay="by channel and state",
        complex=True,
        recurrence=(
            r"$h_t = \exp(\Delta A) h_{t-1}$",
            r"$\quad + A^{-1} (\exp(\Delta A) - 1) x_t$",
            r"$y_t = \mathrm{Re}(w^T h_t)$",
        ),
    )
    kind: Literal["dss"] = "dss"
    d_state: PositiveInt = 64  # N complex states; their eigenvalues are shared by all channels
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform by channel
    segment: PositiveInt = 32  # L, tokens from one kept state to the next: speed and memory only, never the result

    @model_validator(mode="after")
    def _sane(self) -> DssMixer:
        check_range("dt_range", self.dt_range)
        return self

    def heads(self, d_model: int) -> int:
        return d_model

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (d_model, self.d_state, 2)

    def parameters(self, d_model: int) -> int:
        D, N = d_model, self.d_state
        return 2 * D + 2 * N + 2 * D * N + linear(D, D, bias=True)  # dt, D; A; W; the projection of the output

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return activation_memory_of_segments(4 * d_model, self.recurrent_state_numbers(d_model), self.segment, 0.2)
