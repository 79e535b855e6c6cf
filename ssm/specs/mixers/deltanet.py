"""The spec of DeltaNet."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import Taxonomy
from ssm.specs.mixers.delta_rule import DeltaRuleMixer


class DeltaNetMixer(DeltaRuleMixer):
    """DeltaNet, the delta rule without decay (Schlag et al. 2021; computed in chunks: Yang et al. 2024, Section 3).

    `key_dim` and `value_dim` are D / H by default.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="DeltaNet",
        paper="Schlag et al. 2021, Yang et al. 2024",
        scan="delta_scan",
        decay="none",
        complex=False,
        recurrence=(
            r"$S_t = (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T$",
            r"$y_t = q_t^T S_t$",
        ),
    )
    kind: Literal["deltanet"] = "deltanet"
    gate: bool = False  # swish gate after the norm of each head

    def check(self, d_model: int) -> None:
        if None in (self.key_dim, self.value_dim) and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give key_dim and value_dim")

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        per_head = d_model // self.n_heads
        return (self.n_heads, self.key_dim or per_head, self.value_dim or per_head)

    def extra(self, d_model: int) -> list[int]:
        H, _, V = self.state_shape(d_model)
        return [H * V] if self.gate else []

    def kept_of_extra(self, d_model: int) -> int:
        H, _, V = self.state_shape(d_model)
        return 2 * H * V * self.gate  # activated gate, and its product
