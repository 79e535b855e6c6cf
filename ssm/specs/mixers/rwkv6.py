"""RWKV-6's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy, check_range
from ssm.specs.sublayer import ActivationMemory, linear, low_rank


class Rwkv6Mixer(MixerSpecBase):
    """RWKV-6, "Finch" (Peng et al. 2024, Section 4): its time mixing; its channel mixing is an ffn."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="RWKV-6",
        paper="Peng et al. 2024",
        scan="gated_scan",
        decay="by key",
        complex=False,
        recurrence=(
            r"$S_t = \mathrm{diag}(w_t) S_{t-1} + k_t v_t^T$",
            r"$y_t = r_t^T (S_{t-1} + \mathrm{diag}(u) k_t v_t^T)$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset({"decay_range"})
    kind: Literal["rwkv6"] = "rwkv6"
    head_dim: PositiveInt = 64  # K = V
    shift_rank: PositiveInt = 32  # of the five low-rank maps that mix a token with the one before it
    decay_rank: PositiveInt = 64  # of the low-rank map that makes the decay
    norm_eps: PositiveFloat = 64e-5  # of the group norm
    chunk: PositiveInt = 32  # tokens per chunk of the scan: speed only, never the result
    decay_range: Range | None = (
        None  # -log w of first and last channel at initialization; None: e^-6 to e^-1, the authors'
    )

    @model_validator(mode="after")
    def _sane(self) -> Rwkv6Mixer:
        if self.decay_range is not None:
            check_range("decay_range", self.decay_range)
        return self

    def check(self, d_model: int) -> None:
        if d_model % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide d_model {d_model}")

    @property
    def receptive_field(self) -> int:
        return 2  # a token is mixed with the one before it

    def heads(self, d_model: int) -> int:
        return d_model // self.head_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.head_dim, self.head_dim)

    def parameters(self, d_model: int) -> int:
        D, mixed = d_model, 5  # w, k, v, r, g
        shift = D + mixed * (D + low_rank(D, self.shift_rank, D))  # mu_x; lambda, A and B of each
        decay = D + low_rank(D, self.decay_rank, D)  # lambda_w, A_w and B_w
        return shift + decay + 3 * D + 5 * linear(D, D)  # u and the norm; r, k, v, g, output

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model) + d_model  # and the last token's input

    def activation_memory(self, d_model: int) -> ActivationMemory:
        mixed = 10 * d_model + 5 * self.shift_rank  # how much of the last token, and the mixed inputs; low ranks
        a_token = mixed + 12 * d_model + self.decay_rank  # r, k, v, w, g, the output and its norm
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False)
