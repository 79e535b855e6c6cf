"""The spec of Mamba-1."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy
from ssm.specs.mixers.mimetic import Mimetic
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution

SCAN_CHUNK = 16  # tokens between states that the selective scan saves


class Mamba1Mixer(MixerSpecBase):
    """Mamba (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", Section 3).

    With `selection_norm_eps` it is the mixer of Falcon Mamba (Zuo et al. 2024, "Falcon Mamba: The First Competitive
    Attention-free 7B Language Model", Section 3.1).
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
    has_bc: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"selection_norm_eps"})
    kind: Literal["mamba1"] = "mamba1"
    d_state: PositiveInt = 16  # N, states of a channel
    expand: PositiveInt = 2  # E; the mixer has E * D channels
    d_conv: PositiveInt = 4  # K, width of the causal convolution
    dt_rank: PositiveInt | None = None  # R, rank of the projection to dt; default D / 16, rounded up
    a_range: Range | None = None  # -A at initialization, evenly spaced over the states; default 1, 2, ..., N
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform; with small dt and a_range (1, 1), decay is slow
    # `one`: the first state of each channel never decays; `zero`: the last one has no memory; `both`: both.
    polarize: Literal["none", "one", "zero", "both"] = "none"
    polarized_size: Literal["added", "matched"] = "added"  # polarized states are added to the N, or are among them
    mimetic: Mimetic = Field(default_factory=Mimetic)  # mimetic initialization: `true`, `false` or single parts
    selection_norm_eps: PositiveFloat | None = None  # epsilon of RMS norms without weights on dt, B and C

    @model_validator(mode="after")
    def _has_learned_states(self) -> Mamba1Mixer:
        if self.learned_states < 1:
            raise ValueError(f"d_state {self.d_state} leaves no state between the polarized ones")
        return self

    @property
    def polarized_states(self) -> int:
        """Number of states with a constant decay."""
        return {"none": 0, "one": 1, "zero": 1, "both": 2}[self.polarize]

    @property
    def learned_states(self) -> int:
        """Number of states with a learned decay."""
        return self.d_state - (self.polarized_states if self.polarized_size == "matched" else 0)

    @property
    def states(self) -> int:
        """States of a channel: N, or N + 1 or N + 2 with added polarized states."""
        return self.learned_states + self.polarized_states

    def rank(self, d_model: int) -> int:
        """R."""
        return self.dt_rank or -(-d_model // 16)

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    def heads(self, d_model: int) -> int:
        return self.expand * d_model  # every channel has its own decay, like a head in Mamba-2

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.states)

    def parameters(self, d_model: int) -> int:
        D, E, N, R = d_model, self.heads(d_model), self.states, self.rank(d_model)
        in_proj, out_proj = linear(D, 2 * E), linear(E, D)  # x, z
        x_proj, dt_proj = linear(E, R + 2 * N), linear(R, E, bias=True)  # dt, B, C
        system = E * (self.learned_states + 1)  # A_log and D
        return in_proj + short_convolution(E, self.d_conv) + x_proj + dt_proj + system + out_proj

    def input_numbers(self, d_model: int) -> int:
        return last_inputs(self.heads(d_model), self.d_conv)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        E = self.heads(d_model)
        selection = self.rank(d_model) + 2 * self.states  # outputs of x_proj, and of the norms
        a_token = 5 * E + selection * (1 if self.selection_norm_eps is None else 2)  # x, z, x convolved, dt, y
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=SCAN_CHUNK, workspace=0.7)
