"""The spec of Gated DeltaNet."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.mixers.base import Range, Taxonomy
from ssm.specs.mixers.delta_rule import GatedDeltaRuleMixer


class GatedDeltaNetMixer(GatedDeltaRuleMixer):
    """Gated DeltaNet, the delta rule with the decay of Mamba-2 (Yang, Kautz & Hatamizadeh 2024, Section 3).

    By default, `key_dim` is 3 D / (4 G) and `value_dim` is 2 K.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Gated DeltaNet",
        paper="Yang, Kautz & Hatamizadeh 2024",
        scan="delta_scan",
        decay="scalar per head",
        complex=False,
        recurrence=(
            r"$S_t = \alpha_t (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T$",
            r"$y_t = q_t^T S_t$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset({"decay"})
    kind: Literal["gated_deltanet"] = "gated_deltanet"
    gate: bool = True  # gate after the norm of each head
    gate_activation: Literal["silu", "sigmoid"] = "silu"  # activation function of the gate
    a_range: Range = (1e-2, 16.0)  # -A at initialization, uniform
    decay: Literal["input_dependent", "none"] = "input_dependent"  # `none`: alpha_t is 1, as in DeltaNet

    def check(self, d_model: int) -> None:
        super().check(d_model)
        if self.key_dim is None and 3 * d_model % (4 * self.key_heads):
            raise ValueError(f"{4 * self.key_heads} must divide 3 d_model = {3 * d_model}, or give key_dim")

    @property
    def has_a(self) -> bool:
        return self.decay != "none"

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        K = self.key_dim or 3 * d_model // (4 * self.key_heads)
        return (self.n_heads, K, self.value_dim or 2 * K)

    def extra(self, d_model: int) -> list[int]:
        H, _, V = self.state_shape(d_model)
        return [H] * (self.decay == "input_dependent") + [H * V] * self.gate  # dt, gate

    def kept_of_extra(self, d_model: int) -> int:
        H, _, V = self.state_shape(d_model)
        return 2 * H * V * self.gate  # activated gate, and its product

    def parameters(self, d_model: int) -> int:
        by_head = 0 if self.decay == "none" else 2  # A_log, bias of dt
        return super().parameters(d_model) + by_head * self.n_heads
