"""Softmax attention's spec."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution


class AttentionMixer(MixerSpecBase):
    """Causal softmax attention (Vaswani et al. 2017) with rotary positions (Su et al. 2021): its cache is its state.

    With rotary_pct 0.25 and biases it is GPT-NeoX's (Pythia); with grouped heads and a window, Mistral's; with norms of
    queries and keys and a gate, Qwen3.5's; with a convolution, that of mamba_ssm's hybrids; with a latent and without
    positions, Kimi Linear's (DeepSeek-AI 2024, "DeepSeek-V2", Section 2.1: multi-head latent attention).
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Softmax attention",
        paper="Vaswani et al. 2017",
        scan="none",
        decay="cache",
        complex=False,
        recurrence=(
            r"$\mathrm{cache}_t = (\mathrm{cache}_{t-1}, k_t, v_t)$",
            r"$y_t = {\sum}_s \, \mathrm{softmax}_s(q_t^T k_s / \sqrt{K}) v_s$",
        ),
    )
    later: ClassVar[frozenset[str]] = frozenset(
        {"qk_norm", "gate", "norm_eps", "d_conv", "latent_dim", "shared_dim", "value_dim"}
    )
    kind: Literal["attention"] = "attention"
    n_heads: PositiveInt = 4  # H
    n_kv_heads: PositiveInt | None = None  # G; keys and values are shared by H / G heads; None: H
    head_dim: PositiveInt | None = None  # K; None: D / H
    rotary_pct: Annotated[float, Field(ge=0, le=1)] = 1.0  # of every head's dimensions, the first ones
    rotary_base: PositiveFloat = 10_000.0
    window: PositiveInt | None = None  # tokens that a token sees, itself included; None: all before it
    bias: bool = False  # on the projections to q, k and v
    out_bias: bool | None = None  # on the projection of the output; None: as bias
    qk_norm: bool = False  # an RMSNorm of every head's queries and keys, scaled by 1 + weight
    gate: bool = False  # sigmoid(W_g x) weighs the output of every head; W_g stands beside the queries' projection
    norm_eps: PositiveFloat = 1e-6  # of the norms of queries and keys
    d_conv: PositiveInt | None = None  # width of a causal convolution with a bias over q, k and v; None: there is none
    latent_dim: PositiveInt | None = None  # R: the cache keeps R normalized numbers that make k and v; None: k and v
    shared_dim: NonNegativeInt = 0  # with a latent: of K the last ones, which all heads share and the cache keeps too
    value_dim: PositiveInt | None = None  # with a latent: V; None: K

    def check(self, d_model: int) -> None:
        if self.head_dim is None and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give head_dim")
        if self.n_heads % self.heads(d_model):
            raise ValueError(f"n_kv_heads {self.n_kv_heads} must divide n_heads {self.n_heads}")
        if self.rotary_dim(d_model) % 2:
            raise ValueError(f"rotary_pct {self.rotary_pct:g} rotates {self.rotary_dim(d_model)} dimensions, not pairs")
        if self.latent_dim is None and (self.shared_dim or self.value_dim):
            raise ValueError("shared_dim and value_dim go with a latent_dim")
        apart = (self.n_kv_heads, self.rotary_pct, self.bias, self.qk_norm, self.gate, self.d_conv)
        if self.latent_dim and any(apart):
            raise ValueError("latent_dim: goes with rotary_pct 0, without n_kv_heads, bias, qk_norm, gate and d_conv")
        if self.shared_dim >= self.key_dim(d_model):
            raise ValueError(f"shared_dim {self.shared_dim} must be less than K = {self.key_dim(d_model)}")

    def heads(self, d_model: int) -> int:
        return 1 if self.latent_dim else self.n_kv_heads or self.n_heads

    def key_dim(self, d_model: int) -> int:
        """K."""
        return self.head_dim or d_model // self.n_heads

    def read_dim(self, d_model: int) -> int:
        """V: numbers of a head's values."""
        return self.value_dim or self.key_dim(d_model)

    @property
    def receptive_field(self) -> int:
        return self.d_conv or 1

    @property
    def grows(self) -> bool:
        return self.window is None

    @property
    def output_bias(self) -> bool:
        """Whether the projection of the output has a bias."""
        return self.bias if self.out_bias is None else self.out_bias

    def rotary_dim(self, d_model: int) -> int:
        """Dimensions of a head that are rotated."""
        return int(self.key_dim(d_model) * self.rotary_pct)

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        if self.latent_dim:
            return (1, 1, 1, self.latent_dim + self.shared_dim)
        return (self.heads(d_model), 1, 2, self.key_dim(d_model))

    def projected(self, d_model: int) -> int:
        """Numbers of q, its gate, and k and v or the latent of one token."""
        return (1 + self.gate) * self.n_heads * self.key_dim(d_model) + self.recurrent_state_numbers(d_model)

    def parameters(self, d_model: int) -> int:
        D, projected, K, V = d_model, self.projected(d_model), self.key_dim(d_model), self.read_dim(d_model)
        convolution = short_convolution(projected, self.d_conv) if self.d_conv else 0
        norms, R = 2 * K * self.qk_norm, self.latent_dim or 0
        latent = R + linear(R, self.n_heads * (K - self.shared_dim + V))  # its norm, what makes k and v of it
        output = linear(self.n_heads * V, D, self.output_bias)
        return linear(D, projected, self.bias) + convolution + norms + latent + output

    def state_numbers(self, d_model: int, context: int) -> int:
        """Keys and values: of all tokens, or of a window with the token that reads it, which is one more than stays."""
        last = last_inputs(self.projected(d_model), self.receptive_field)
        return self.recurrent_state_numbers(d_model) * (self.window or context) + last

    def state_operations(self, d_model: int, context: int) -> float:
        """Two a number of a head's keys and values and token seen: (context + 1) / 2 on average, a window at most."""
        seen = min((context + 1) / 2, self.window or context)
        return 2 * self.n_heads * (self.key_dim(d_model) + self.read_dim(d_model)) * seen

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.n_heads, self.key_dim(d_model), self.read_dim(d_model)
        if self.latent_dim:  # q, k and its parts, v twice, the output; the latent, its norm and that scaled
            return ActivationMemory(
                H * (4 * K + 3 * V) + 4 * self.recurrent_state_numbers(d_model), workspace=0.3, bfloat16=0.5
            )
        G = self.heads(d_model)
        queries, keys = 3 * H * K, 3 * G * K  # q, q rotated and the output; k, k rotated and v
        queries += 2 * H * K * self.gate + 2 * H * K * self.qk_norm
        keys += 2 * G * K * self.qk_norm
        before = self.projected(d_model) if self.d_conv else 0  # what the convolution reads
        return ActivationMemory(queries + keys + before, workspace=0.5, bfloat16=0.5)
