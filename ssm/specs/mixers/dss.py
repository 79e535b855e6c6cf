"""The spec of DSS."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, activation_memory_of_segments
from ssm.specs.sublayer import ActivationMemory, linear


class DssMixer(MixerSpecBase):
    """DSS-exp (Gupta, Gu & Berant 2022, "Diagonal State Spaces are as Effective as Structured State Spaces").

    The second variant of the paper, DSS-softmax, is not supported. It divides the kernel of each state by its sum over
    the training length, so it is not a recurrence for sequences of any length.
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
    d_state: PositiveInt = 64  # N, complex states of a channel; all channels share the eigenvalues
    dt_range: Range = (1e-3, 0.1)  # dt of each channel at initialization, log-uniform
    segment: PositiveInt = 32  # L, tokens between saved states; changes speed and memory, not the result

    def heads(self, d_model: int) -> int:
        return d_model

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (d_model, self.d_state, 2)

    def parameters(self, d_model: int) -> int:
        D, N = d_model, self.d_state
        return 2 * D + 2 * N + 2 * D * N + linear(D, D, bias=True)  # dt, D; A; W; output projection

    def activation_memory(self, d_model: int) -> ActivationMemory:
        return activation_memory_of_segments(4 * d_model, self.recurrent_state_numbers(d_model), self.segment, 0.2)
