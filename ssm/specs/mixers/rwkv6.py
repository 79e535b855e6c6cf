"""The spec of RWKV-6."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear, low_rank


class Rwkv6Mixer(MixerSpecBase):
    """The time mixing of RWKV-6, "Finch" (Peng et al. 2024, Section 4). Its channel mixing is a feed-forward layer."""

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
    receptive_field: ClassVar[int] = 2  # the current token is mixed with the one before
    later: ClassVar[frozenset[str]] = frozenset({"decay_range"})
    kind: Literal["rwkv6"] = "rwkv6"
    head_dim: PositiveInt = 64  # K = V, dimensions of a head's keys and values
    shift_rank: PositiveInt = 32  # rank of the five maps that mix a token with the token before
    decay_rank: PositiveInt = 64  # rank of the map to the decay
    norm_eps: PositiveFloat = 64e-5  # epsilon of the group norm
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result
    decay_range: Range | None = None  # -log w of first and last channel at initialization; default e^-6 to e^-1

    def check(self, d_model: int) -> None:
        if d_model % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide d_model {d_model}")

    def heads(self, d_model: int) -> int:
        return d_model // self.head_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.head_dim, self.head_dim)

    def parameters(self, d_model: int) -> int:
        D, mixed = d_model, 5  # w, k, v, r, g
        shift = D + mixed * (D + low_rank(D, self.shift_rank, D))  # mu_x; lambda, A and B of each
        decay = D + low_rank(D, self.decay_rank, D)  # lambda_w, A_w and B_w
        return shift + decay + 3 * D + 5 * linear(D, D)  # u and the norm; r, k, v, g, output

    def input_numbers(self, d_model: int) -> int:
        return d_model

    def activation_memory(self, d_model: int) -> ActivationMemory:
        mixed = 10 * d_model + 5 * self.shift_rank  # weights of the last token, and mixed inputs; low ranks
        a_token = mixed + 12 * d_model + self.decay_rank  # r, k, v, w, g, the output and its norm
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False)
