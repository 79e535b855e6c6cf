"""What the specs of DeltaNet, Gated DeltaNet and Kimi Delta Attention share."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Range, check_range
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear

HELPER = True

DELTA_RULE = 8  # operations a number of the memory and token: beside those of a recurrence, what a key reads of it


class DeltaRuleMixer(MixerSpecBase):
    """Keys, queries and values behind short convolutions; a key that writes a value removes its old one."""

    n_heads: PositiveInt = 4  # H
    key_dim: PositiveInt | None = None  # K, by head
    value_dim: PositiveInt | None = None  # V, by head
    d_conv: PositiveInt = 4  # width of the causal convolutions
    negative_eigenvalues: bool = False  # beta is 2 sigmoid(.), not sigmoid(.) (Grazzi et al. 2024)
    norm_eps: PositiveFloat = 1e-5  # of the RMSNorm by head
    chunk: PositiveInt = 32  # tokens per chunk of the scan: speed only, never the result

    @property
    def receptive_field(self) -> int:
        return self.d_conv

    @property
    def key_heads(self) -> int:
        """G: keys and queries are shared by H / G heads."""
        return self.n_heads

    def heads(self, d_model: int) -> int:
        return self.n_heads

    def extra(self, d_model: int) -> list[int]:
        """Numbers a token that the one projection makes beside q, k, v and beta: for the decay, for the gate."""
        return []

    def convolved(self, d_model: int) -> int:
        """Channels of the convolutions: 2 G K + H V, those of q, k and v."""
        H, K, V = self.state_shape(d_model)
        return 2 * self.key_heads * K + H * V

    def parameters(self, d_model: int) -> int:
        D, qkv, (H, _, V) = d_model, self.convolved(d_model), self.state_shape(d_model)
        in_proj = linear(D, qkv + H + sum(self.extra(d_model)))
        return in_proj + qkv * self.d_conv + V + linear(H * V, D)  # convolutions without a bias, norm, output

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.recurrent_state_numbers(d_model) + last_inputs(self.convolved(d_model), self.d_conv)

    def state_operations(self, d_model: int, context: int) -> float:
        return DELTA_RULE * self.recurrent_state_numbers(d_model)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.state_shape(d_model)
        projected = 2 * self.convolved(d_model) + H + sum(self.extra(d_model))  # q, k, v behind the convolution too
        read = 4 * H * V  # what keys read of the memory; y, its norm, and that scaled
        a_token = projected + 2 * self.key_heads * K + read + 10 * H  # q and k of length 1; beta, lengths
        return ActivationMemory(
            a_token,
            border=self.recurrent_state_numbers(d_model),
            chunk=self.chunk,
            zeros=False,
            workspace=0.1,
            bfloat16=0.9,
        )


class GatedDeltaRuleMixer(DeltaRuleMixer):
    """With a decay, and with keys and queries that heads may share: Gated DeltaNet and Kimi Delta Attention."""

    n_key_heads: PositiveInt | None = None  # G; keys and queries are shared by H / G heads; None: H
    a_range: Range = (1.0, 16.0)  # -A at initialization, uniform
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform

    @model_validator(mode="after")
    def _sane(self) -> GatedDeltaRuleMixer:
        check_range("a_range", self.a_range)
        check_range("dt_range", self.dt_range)
        return self

    def check(self, d_model: int) -> None:
        if self.n_heads % self.key_heads:
            raise ValueError(f"n_key_heads {self.n_key_heads} must divide n_heads {self.n_heads}")

    @property
    def key_heads(self) -> int:
        return self.n_key_heads or self.n_heads
