"""The spec of RetNet."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear


class RetNetMixer(MixerSpecBase):
    """Gated multi-scale retention (Sun et al. 2023, "Retentive Network", Section 2.2, eq. 8)."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="RetNet",
        paper="Sun et al. 2023",
        scan="gated_scan",
        decay="constant",
        complex=False,
        recurrence=(
            r"$S_t = \gamma e^{i \theta} S_{t-1} + k_t v_t^T$",
            r"$y_t = q_t^T S_t$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset({"decay_exponent"})
    kind: Literal["retnet"] = "retnet"
    n_heads: PositiveInt = 4  # H, number of heads
    decay_exponent: PositiveInt = 5  # e; head h, from 0, decays by gamma_h = 1 - 2^(-e-h)
    key_dim: PositiveInt | None = None  # K, dimensions of a key; default D / H
    value_dim: PositiveInt | None = None  # V, dimensions of a value; default 2 D / H
    rotary_base: PositiveFloat = 10_000.0  # base of the angles theta_i = base^(-2i / K)
    norm: Literal["layer", "rms"] = "layer"  # norm of each head: without weights as in the paper, or fla's with weights
    norm_eps: PositiveFloat = 1e-5  # epsilon of this norm
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result

    @model_validator(mode="after")
    def _pairs_to_rotate(self) -> RetNetMixer:
        if self.key_dim is not None and self.key_dim % 2:
            raise ValueError(f"key_dim must be even, because its dimensions are rotated in pairs, got {self.key_dim}")
        return self

    def check(self, d_model: int) -> None:
        if (self.key_dim is None or self.value_dim is None) and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give key_dim and value_dim")
        if self.key_dim is None and (d_model // self.n_heads) % 2:
            raise ValueError(f"key_dim must be even; it is d_model / n_heads = {d_model // self.n_heads}")

    def heads(self, d_model: int) -> int:
        return self.n_heads

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        per_head = d_model // self.n_heads
        return (self.n_heads, self.key_dim or per_head, self.value_dim or 2 * per_head)

    def parameters(self, d_model: int) -> int:
        D, (H, K, V) = d_model, self.state_shape(d_model)
        norm = V if self.norm == "rms" else 0
        return linear(D, 2 * H * K + 2 * H * V) + linear(H * V, D) + norm  # q, k, v, gate; output

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.state_shape(d_model)
        a_token = 4 * H * K + 6 * H * V  # q and k before and after rotation; v, gate, y, norm of y
        return ActivationMemory(
            a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False, bfloat16=0.9
        )
