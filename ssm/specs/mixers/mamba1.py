"""Mamba-1's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, check_range
from ssm.specs.mixers.mimetic import Mimetic
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution

SCAN_CHUNK = 16  # tokens from one state that the selective scan keeps to the next


class Mamba1Mixer(MixerSpecBase):
    """Mamba (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", Section 3).

    With `selection_norm_eps` it is Falcon Mamba's (Zuo et al. 2024, "Falcon Mamba: The First Competitive Attention-free
    7B Language Model", Section 3.1).
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Mamba",
        paper="Gu & Dao 2023",
        scan="selective_scan",
        decay="by channel and state",
        complex=False,
        recurrence=(
            r"$h_t = \exp(\Delta_t A) h_{t-1} + \Delta_t B_t x_t$",
            r"$y_t = C_t^T h_t$",
        ),
    )
    has_a: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"selection_norm_eps"})
    kind: Literal["mamba1"] = "mamba1"
    d_state: PositiveInt = 16  # N
    expand: PositiveInt = 2  # E; E * d_model channels
    d_conv: PositiveInt = 4  # K, width of the causal convolution
    dt_rank: PositiveInt | None = None  # R, of the projection to dt; None: d_model / 16, rounded up
    a_range: Range | None = None  # -A at initialization, evenly spaced over the states; None: 1, 2, ..., N
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform; with a_range (1, 1), tiny ones decay slowly
    polarize: Literal["none", "one", "zero", "both"] = "none"  # states whose decay is exactly 1 (first), 0 (last), both
    polarized_size: Literal["added", "matched"] = "added"  # these states come on top of N, or take the place of some
    mimetic: Mimetic = Field(default_factory=Mimetic)
    selection_norm_eps: PositiveFloat | None = None  # of RMS norms without weights on dt, B and C; None: no norms

    @model_validator(mode="after")
    def _sane(self) -> Mamba1Mixer:
        check_range("dt_range", self.dt_range)
        if self.a_range is not None:
            check_range("a_range", self.a_range)
        if self.learned_states < 1:
            raise ValueError(f"d_state {self.d_state} leaves no state between the polarized ones")
        return self

    @property
    def polarized_states(self) -> int:
        """States whose decay is a constant."""
        return {"none": 0, "one": 1, "zero": 1, "both": 2}[self.polarize]

    @property
    def learned_states(self) -> int:
        """States whose decay is learned."""
        return self.d_state - (self.polarized_states if self.polarized_size == "matched" else 0)

    @property
    def states(self) -> int:
        """All states of a channel: N, and with added polarized states N + 1 or N + 2."""
        return self.learned_states + self.polarized_states

    def rank(self, d_model: int) -> int:
        """R."""
        return self.dt_rank or -(-d_model // 16)

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    def heads(self, d_model: int) -> int:
        return self.expand * d_model  # every channel has its own decay: heads of one channel, in Mamba-2's words

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.states)

    def parameters(self, d_model: int) -> int:
        D, E, N, R = d_model, self.heads(d_model), self.states, self.rank(d_model)
        in_proj, out_proj = linear(D, 2 * E), linear(E, D)  # x, z
        x_proj, dt_proj = linear(E, R + 2 * N), linear(R, E, bias=True)  # dt, B, C
        system = E * (self.learned_states + 1)  # A_log and D
        return in_proj + short_convolution(E, self.d_conv) + x_proj + dt_proj + system + out_proj

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model) + last_inputs(self.heads(d_model), self.d_conv)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        E = self.heads(d_model)
        selection = self.rank(d_model) + 2 * self.states  # what x_proj gives, and what the norms make of it
        a_token = 5 * E + selection * (1 if self.selection_norm_eps is None else 2)  # x, z, x convolved, dt, y
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=SCAN_CHUNK, workspace=0.7)
