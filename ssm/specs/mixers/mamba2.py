"""The spec of Mamba-2."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Spec
from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, check_range
from ssm.specs.mixers.mimetic import Mimetic
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution


class SlowHeads(Spec):
    """Heads of each layer that are initialized to decay slowly."""

    share: Annotated[float, Field(gt=0, le=1)]  # fraction of the heads, from the first; at least one head
    a_range: Range = (1.0, 1.0)  # -A of these heads at initialization, uniform
    dt_range: Range = (1e-4, 1e-3)  # dt of these heads; with A = -1 they remember 1,000 to 10,000 tokens

    @model_validator(mode="after")
    def _sane(self) -> SlowHeads:
        check_range("a_range", self.a_range)
        check_range("dt_range", self.dt_range)
        return self


class Mamba2Mixer(MixerSpecBase):
    """Mamba-2 (Dao & Gu 2024, "Transformers are SSMs", Section 7).

    It is the parallel block of their Figure 6.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Mamba-2",
        paper="Dao & Gu 2024",
        scan="gated_scan",
        decay="scalar per head",
        complex=False,
        recurrence=(
            r"$h_t = \exp(\Delta_t A) h_{t-1} + \Delta_t B_t x_t^T$",
            r"$y_t = C_t^T h_t$",
        ),
    )
    has_a: ClassVar[bool] = True
    has_bc: ClassVar[bool] = True
    has_dt_limit: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"slow_heads", "conv_bias", "decay"})
    kind: Literal["mamba2"] = "mamba2"
    d_state: PositiveInt = 128  # N, states of a channel
    head_dim: PositiveInt = 64  # P, channels of a head
    expand: PositiveInt = 2  # E; the mixer has E * D channels, in H = E * D / P heads
    n_groups: PositiveInt = 1  # G, groups of heads that share B and C
    d_conv: PositiveInt = 4  # K, width of the causal convolution
    chunk: PositiveInt = 32  # Q, tokens in a chunk of the scan; changes the speed, not the result
    a_range: Range = (1.0, 16.0)  # -A at initialization, uniform; with (1, 1) and a small dt, decay is slow
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform
    slow_heads: SlowHeads | None = None  # heads with another a_range and dt_range
    conv_bias: Literal["uniform", "zero"] = "uniform"  # bias at initialization: as the authors, or as transformers
    # `constant`: dt, and with it the decay, is a learned number of each head, the same for all tokens
    decay: Literal["input_dependent", "constant"] = "input_dependent"
    # Lower and upper limit of dt. An upper limit of null is no limit.
    dt_limit: Annotated[tuple[float, float | None], Field(strict=False)] = (0.0, None)
    mimetic: Mimetic = Field(default_factory=Mimetic)  # mimetic initialization: `true`, `false` or single parts

    @model_validator(mode="after")
    def _limits_ascend(self) -> Mamba2Mixer:
        low, high = self.dt_limit
        if not 0 <= low < (math.inf if high is None else high):
            raise ValueError(f"dt_limit must be 0 <= low < high, got {self.dt_limit}")
        return self

    def check(self, d_model: int) -> None:
        d_inner = self.expand * d_model
        if d_inner % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide expand * d_model = {d_inner}")
        if self.heads(d_model) % self.n_groups:
            raise ValueError(f"n_groups {self.n_groups} must divide the {self.heads(d_model)} heads")

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    def heads(self, d_model: int) -> int:
        return self.expand * d_model // self.head_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.d_state, self.head_dim)

    def convolved(self, d_model: int) -> int:
        """Channels of the convolution, E D + 2 G N: x, B and C."""
        return self.expand * d_model + 2 * self.n_groups * self.d_state

    def dt_inputs(self, d_model: int) -> int:
        """Outputs of the input projection for dt: H, or none if dt is constant."""
        return self.heads(d_model) if self.decay == "input_dependent" else 0

    def parameters(self, d_model: int) -> int:
        D, H, E, xBC = d_model, self.heads(d_model), self.expand * d_model, self.convolved(d_model)
        in_proj, out_proj = linear(D, E + xBC + self.dt_inputs(d_model)), linear(E, D)  # z, x, B, C, dt
        by_head = 3 * H  # A_log, D and the bias of dt
        return in_proj + short_convolution(xBC, self.d_conv) + by_head + E + out_proj  # E: the norm

    def input_numbers(self, d_model: int) -> int:
        return last_inputs(self.convolved(d_model), self.d_conv)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, E, xBC = self.heads(d_model), self.expand * d_model, self.convolved(d_model)
        a_token = 2 * xBC + 4 * E + 4 * H  # before and after the convolution; z, dt x, y and its norm; dt and decays
        return ActivationMemory(
            a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False, workspace=0.4
        )
