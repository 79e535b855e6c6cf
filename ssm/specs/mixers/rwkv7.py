"""The spec of RWKV-7."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.mixers.delta_rule import DELTA_RULE
from ssm.specs.sublayer import ActivationMemory, linear, low_rank


class Rwkv7Mixer(MixerSpecBase):
    """The time mixing of RWKV-7, "Goose" (Peng et al. 2025, Section 4). Its channel mixing is a feed-forward layer.

    Each layer mixes the values of the first layer into its own, so the first layer must also be RWKV-7.
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
    receptive_field: ClassVar[int] = 2  # the current token is mixed with the one before
    kind: Literal["rwkv7"] = "rwkv7"
    head_dim: PositiveInt = 64  # K = V, dimensions of a head's keys and values
    decay_rank: PositiveInt = 64  # rank of the map to the decay w
    rate_rank: PositiveInt = 64  # rank of the map to the in-context learning rate a
    gate_rank: PositiveInt = 128  # rank of the map to the gate
    value_rank: PositiveInt | None = 32  # rank of the map that mixes in the first layer's values; null: no mixing
    norm_eps: PositiveFloat = 64e-5  # epsilon of the group norm
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result

    def check(self, d_model: int) -> None:
        if d_model % self.head_dim:
            raise ValueError(f"head_dim {self.head_dim} must divide d_model {d_model}")

    def at(self, layer: int) -> Rwkv7Mixer:
        return self.model_copy(update={"value_rank": None}) if layer == 0 else self

    @property
    def follows(self) -> str | None:
        return None if self.value_rank is None else self.kind

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

    def input_numbers(self, d_model: int) -> int:
        return d_model

    def state_operations(self, d_model: int, context: int) -> float:
        return DELTA_RULE * self.recurrent_state_numbers(d_model)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        ranks = self.gate_rank + self.decay_rank + self.rate_rank + (self.value_rank or 0)
        mixed = 10 * d_model + ranks  # difference to the last token, mixed inputs, r, k and v; low ranks
        a_token = mixed + 18 * d_model  # w, a, kappa, final keys and values, output, its norm, bonus
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False)
