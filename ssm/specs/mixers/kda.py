"""The spec of Kimi Delta Attention."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.mixers.base import Taxonomy
from ssm.specs.mixers.delta_rule import GatedDeltaRuleMixer
from ssm.specs.sublayer import linear


class KdaMixer(GatedDeltaRuleMixer):
    """Kimi Delta Attention: Gated DeltaNet with a decay for each key dimension (Kimi Team 2025, Section 3).

    By default, `key_dim` is D / G and `value_dim` is K.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="KDA",
        paper="Kimi Team 2025",
        scan="delta_scan",
        decay="by key",
        complex=False,
        recurrence=(
            r"$S_t = (I - \beta_t k_t k_t^T) \, \mathrm{diag}(\alpha_t) S_{t-1} + \beta_t k_t v_t^T$",
            r"$y_t = q_t^T S_t$",
        ),
    )
    has_a: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"gate_bias"})
    kind: Literal["kda"] = "kda"
    gate_rank: PositiveInt | None = None  # R, rank of the projections to the decay and to the gate; default V
    gate_bias: bool = True  # bias of the projection to the gate; Kimi Linear has none

    def check(self, d_model: int) -> None:
        super().check(d_model)
        if self.key_dim is None and d_model % self.key_heads:
            raise ValueError(f"{self.key_heads} heads of keys must divide d_model {d_model}, or give key_dim")

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        K = self.key_dim or d_model // self.key_heads
        return (self.n_heads, K, self.value_dim or K)

    def rank(self, d_model: int) -> int:
        """R."""
        return self.gate_rank or self.state_shape(d_model)[-1]

    def extra(self, d_model: int) -> list[int]:
        return [self.rank(d_model)] * 2  # for the decay, for the gate

    def parameters(self, d_model: int) -> int:
        R, (H, K, V) = self.rank(d_model), self.state_shape(d_model)
        decay = linear(R, H * K) + H * K + H  # up, the bias of dt, A_log
        return super().parameters(d_model) + decay + linear(R, H * V, self.gate_bias)

    def kept_of_extra(self, d_model: int) -> int:
        H, K, V = self.state_shape(d_model)
        return 3 * H * K + 2 * H * V  # dt before and after softplus, log alpha; activated gate, its product
