"""Base classes for the specs of DeltaNet, Gated DeltaNet and Kimi Delta Attention."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Range
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear

HELPER = True

DELTA_RULE = 8  # operations for each state number and token: a recurrence's, and two to read the state with the key


class DeltaRuleMixer(MixerSpecBase):
    """The delta rule on keys, queries and values after short convolutions: a new value replaces the old one."""

    n_heads: PositiveInt = 4  # H, number of heads
    key_dim: PositiveInt | None = None  # K, dimensions of a key
    value_dim: PositiveInt | None = None  # V, dimensions of a value
    d_conv: PositiveInt = 4  # width of the causal convolutions
    negative_eigenvalues: bool = False  # beta = 2 sigmoid(.) instead of sigmoid(.) (Grazzi et al. 2024)
    norm_eps: PositiveFloat = 1e-5  # epsilon of the RMSNorm of each head
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    @property
    def key_heads(self) -> int:
        """G: heads of keys and queries, each shared by H / G heads."""
        return self.n_heads

    def heads(self, d_model: int) -> int:
        return self.n_heads

    def extra(self, d_model: int) -> list[int]:
        """Further outputs of the input projection after q, k, v and beta: for the decay, for the gate."""
        return []

    def kept_of_extra(self, d_model: int) -> int:
        """Numbers that decay and gate keep of a token for the gradients, besides their inputs `extra`."""
        return 0

    def convolved(self, d_model: int) -> int:
        """Channels of the convolutions, 2 G K + H V: q, k and v."""
        H, K, V = self.state_shape(d_model)
        return 2 * self.key_heads * K + H * V

    def parameters(self, d_model: int) -> int:
        D, qkv, (H, _, V) = d_model, self.convolved(d_model), self.state_shape(d_model)
        in_proj = linear(D, qkv + H + sum(self.extra(d_model)))
        return in_proj + qkv * self.d_conv + V + linear(H * V, D)  # convolutions without a bias, norm, output

    def input_numbers(self, d_model: int) -> int:
        return last_inputs(self.convolved(d_model), self.d_conv)

    def state_operations(self, d_model: int, context: int) -> float:
        return DELTA_RULE * self.recurrent_state_numbers(d_model)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.state_shape(d_model)
        projected = 2 * self.convolved(d_model) + H + sum(self.extra(d_model))  # q, k, v before and after convolution
        read = 4 * H * V  # values that keys read from the state; y, normalized y, and that scaled
        a_token = projected + 2 * self.key_heads * K + read + 10 * H  # normalized q and k; beta, lengths
        a_token += self.kept_of_extra(d_model)
        return ActivationMemory(
            a_token,
            border=self.recurrent_state_numbers(d_model),
            chunk=self.chunk,
            zeros=False,
            workspace=0.1,
            bfloat16=0.9,
        )


class GatedDeltaRuleMixer(DeltaRuleMixer):
    """The delta rule with a decay, in which heads can share keys and queries."""

    n_key_heads: PositiveInt | None = None  # G, heads of keys and queries, each shared by H / G heads; default H
    a_range: Range = (1.0, 16.0)  # -A at initialization, uniform
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform

    def check(self, d_model: int) -> None:
        if self.n_heads % self.key_heads:
            raise ValueError(f"n_key_heads {self.n_key_heads} must divide n_heads {self.n_heads}")

    @property
    def key_heads(self) -> int:
        return self.n_key_heads or self.n_heads
