"""The spec of GLA."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear


class GlaMixer(MixerSpecBase):
    """Gated linear attention, with a decay for each key dimension (Yang et al. 2023, Section 4.4)."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="GLA",
        paper="Yang et al. 2023",
        scan="gated_scan",
        decay="by key",
        complex=False,
        recurrence=(
            r"$S_t = \mathrm{diag}(\alpha_t) S_{t-1} + k_t v_t^T$",
            r"$y_t = q_t^T S_t$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset({"decay"})
    kind: Literal["gla"] = "gla"
    n_heads: PositiveInt = 4  # H, number of heads
    key_dim: PositiveInt | None = None  # K, dimensions of a key; default D / (2 H)
    value_dim: PositiveInt | None = None  # V, dimensions of a value; default D / H
    gate_rank: PositiveInt = 16  # rank of the projection to the decay
    gate_divisor: PositiveFloat = 16.0  # tau in the decay alpha = sigmoid(.)^(1 / tau)
    # `constant`: alpha = sigmoid(b)^(1 / tau), a learned number of each key dimension, the same for all tokens
    decay: Literal["input_dependent", "constant"] = "input_dependent"
    norm_eps: PositiveFloat = 1e-5  # epsilon of the RMSNorm of each head
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result

    def check(self, d_model: int) -> None:
        if self.key_dim is None and d_model % (2 * self.n_heads):
            raise ValueError(f"2 * n_heads = {2 * self.n_heads} must divide d_model {d_model}, or give key_dim")
        if self.value_dim is None and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give value_dim")

    def heads(self, d_model: int) -> int:
        return self.n_heads

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        per_head = d_model // self.n_heads
        return (self.n_heads, self.key_dim or per_head // 2, self.value_dim or per_head)

    @property
    def rank(self) -> int:
        """Outputs of the input projection for the decay: `gate_rank`, or none if the decay is constant."""
        return self.gate_rank if self.decay == "input_dependent" else 0

    def parameters(self, d_model: int) -> int:
        D, R, (H, K, V) = d_model, self.rank, self.state_shape(d_model)
        in_proj = linear(D, 2 * H * K + 2 * H * V + R)  # q, k, v, gate, W_1
        return in_proj + linear(R, H * K, bias=True) + V + linear(H * V, D)  # W_2 and b, norm, output

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.state_shape(d_model)
        keys, values = 4 * H * K, 7 * H * V  # q, k, decay and its logarithm; v, gate, y, norm of y
        return ActivationMemory(
            keys + values + self.rank, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False
        )
