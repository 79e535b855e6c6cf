"""RWKV-7's spec."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.mixers.delta_rule import DELTA_RULE
from ssm.specs.sublayer import ActivationMemory, linear, low_rank


class Rwkv7Mixer(MixerSpecBase):
    """RWKV-7, "Goose" (Peng et al. 2025, Section 4): its time mixing; its channel mixing is an ffn.

    Layers mix the first layer's values into their own: that layer has to be of this kind, and has no such map.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="RWKV-7",
        paper="Peng et al. 2025",
        scan="delta_scan",
        decay="by key",
        complex=False,
        recurrence=(
            r"$S_t = (\mathrm{diag}(w_t) - (a_t \odot \kappa_t) \kappa_t^T) S_{t-1} + k_t v_t^T$",
            r"$y_t = r_t^T S_t$",
        ),
    )
    kind: Literal["rwkv7"] = "rwkv7"
    head_dim: PositiveInt = 64  # K = V
    decay_rank: PositiveInt = 64  # of the low-rank map that makes the decay w
    rate_rank: PositiveInt = 64  # of that which makes the in-context learning rate a
    gate_rank: PositiveInt = 128  # of that which makes the gate
    value_rank: PositiveInt | None = 32  # of that which mixes in the first layer's values; None: they are not
    norm_eps: PositiveFloat = 64e-5  # of the group norm
    chunk: PositiveInt = 32  # tokens per chunk of the scan: speed only, never the result

    def check(self, d_model: int) -> None:
        if d_model % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide d_model {d_model}")

    def at(self, layer: int) -> Rwkv7Mixer:
        return self.model_copy(update={"value_rank": None}) if layer == 0 else self

    @property
    def follows(self) -> str | None:
        return None if self.value_rank is None else self.kind

    @property
    def receptive_field(self) -> int:
        return 2  # a token is mixed with the one before it

    def heads(self, d_model: int) -> int:
        return d_model // self.head_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), self.head_dim, self.head_dim)

    def parameters(self, d_model: int) -> int:
        D = d_model
        ranks = [rank for rank in (self.decay_rank, self.rate_rank, self.value_rank) if rank is not None]
        maps = sum(D + low_rank(D, rank, D) for rank in ranks) + low_rank(D, self.gate_rank, D)
        vectors = 6 * D + 3 * D + 2 * D  # mixes; removal, boost and bonus; the norm
        return vectors + maps + 4 * linear(D, D)  # r, k, v, output

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model) + d_model  # and the last token's input

    def state_operations(self, d_model: int, context: int) -> float:
        return DELTA_RULE * self.recurrent_state_numbers(d_model)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        ranks = self.gate_rank + self.decay_rank + self.rate_rank + (self.value_rank or 0)
        mixed = 10 * d_model + ranks  # the distance to the last token, the mixed inputs, r, k and v; low ranks
        a_token = mixed + 18 * d_model  # w, a, kappa, the keys and values that come, the output, its norm, the bonus
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False)
