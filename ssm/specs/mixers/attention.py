"""The spec of softmax attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, last_inputs, linear, short_convolution

CACHED = 150  # a number of the cache takes as long as so many operations in each pass: measured in decoding


class AttentionMixer(MixerSpecBase):
    """Causal softmax attention (Vaswani et al. 2017) with rotary positions (Su et al. 2021). Its state is its cache.

    The keys give the attention layers of these models:

    - GPT-NeoX and Pythia: `rotary_pct: 0.25` and biases;
    - Mistral: grouped heads and a window;
    - Qwen3.5: norms of queries and keys, and a gate;
    - hybrids of mamba_ssm: a convolution;
    - Kimi Linear: a latent, without positions (multi-head latent attention; DeepSeek-AI 2024, "DeepSeek-V2", Section
      2.1).
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
    n_heads: PositiveInt = 4  # H, number of heads
    n_kv_heads: PositiveInt | None = None  # G, heads of keys and values, each shared by H / G heads; default H
    head_dim: PositiveInt | None = None  # K, dimensions of a head; default D / H
    rotary_pct: Annotated[float, Field(ge=0, le=1)] = (
        1.0  # fraction of a head's dimensions, the first, that are rotated
    )
    rotary_base: PositiveFloat = 10_000.0  # base of the rotary frequencies
    window: PositiveInt | None = None  # tokens that a token attends to, itself included; without it, all before
    bias: bool = False  # biases on the projections to q, k and v
    out_bias: bool | None = None  # bias on the output projection; default: as `bias`
    qk_norm: bool = False  # RMSNorm of queries and keys in each head, scaled by 1 + weight
    gate: bool = False  # sigmoid(W_g x) multiplies the output of each head
    norm_eps: PositiveFloat = 1e-6  # epsilon of the norms of queries and keys
    d_conv: PositiveInt | None = None  # width of a causal convolution (with bias) over q, k and v; without it, none
    latent_dim: PositiveInt | None = None  # R: the cache stores R normalized numbers from which k and v are computed
    shared_dim: NonNegativeInt = 0  # with a latent: the last dimensions of k, shared by all heads and also cached
    value_dim: PositiveInt | None = None  # with a latent: V, dimensions of a value; default K

    def check(self, d_model: int) -> None:
        if self.head_dim is None and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give head_dim")
        if self.n_heads % self.heads(d_model):
            raise ValueError(f"n_kv_heads {self.n_kv_heads} must divide n_heads {self.n_heads}")
        if self.rotary_dim(d_model) % 2:
            raise ValueError(f"rotary_pct {self.rotary_pct:g} rotates {self.rotary_dim(d_model)} dimensions, not pairs")
        if self.latent_dim is None and (self.shared_dim or self.value_dim):
            raise ValueError("shared_dim and value_dim go with a latent_dim")
        incompatible = (self.n_kv_heads, self.rotary_pct, self.bias, self.qk_norm, self.gate, self.d_conv)
        if self.latent_dim and any(incompatible):
            raise ValueError("latent_dim: goes with rotary_pct 0, without n_kv_heads, bias, qk_norm, gate and d_conv")
        if self.shared_dim >= self.key_dim(d_model):
            raise ValueError(f"shared_dim {self.shared_dim} must be less than K = {self.key_dim(d_model)}")

    def heads(self, d_model: int) -> int:
        return 1 if self.latent_dim else self.n_kv_heads or self.n_heads

    def key_dim(self, d_model: int) -> int:
        """K."""
        return self.head_dim or d_model // self.n_heads

    def read_dim(self, d_model: int) -> int:
        """V: dimensions of a head's values."""
        return self.value_dim or self.key_dim(d_model)

    @property
    def receptive_field(self) -> int:
        return self.d_conv or 1

    @property
    def grows(self) -> bool:
        return self.window is None

    @property
    def output_bias(self) -> bool:
        """Whether the output projection has a bias."""
        return self.bias if self.out_bias is None else self.out_bias

    def rotary_dim(self, d_model: int) -> int:
        """Dimensions of a head that are rotated."""
        return int(self.key_dim(d_model) * self.rotary_pct)

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        if self.latent_dim:
            return (1, 1, 1, self.latent_dim + self.shared_dim)
        return (self.heads(d_model), 1, 2, self.key_dim(d_model))

    def projected(self, d_model: int) -> int:
        """Size of q, its gate, and k and v (or the latent) for one token."""
        return (1 + self.gate) * self.n_heads * self.key_dim(d_model) + self.recurrent_state_numbers(d_model)

    def parameters(self, d_model: int) -> int:
        D, projected, K, V = d_model, self.projected(d_model), self.key_dim(d_model), self.read_dim(d_model)
        convolution = short_convolution(projected, self.d_conv) if self.d_conv else 0
        norms, R = 2 * K * self.qk_norm, self.latent_dim or 0
        latent = R + linear(R, self.n_heads * (K - self.shared_dim + V))  # its norm, what makes k and v of it
        output = linear(self.n_heads * V, D, self.output_bias)
        return linear(D, projected, self.bias) + convolution + norms + latent + output

    def state_numbers(self, d_model: int, context: int) -> int:
        """Keys and values of all tokens, or of a window with the current token, whose oldest entry is then dropped."""
        last = last_inputs(self.projected(d_model), self.receptive_field)
        return self.recurrent_state_numbers(d_model) * (self.window or context) + last

    def state_operations(self, d_model: int, context: int) -> float:
        """Two operations for each number of keys and values and for each token that is attended to.

        A token attends to (context + 1) / 2 tokens on average, or to the window if that is shorter.
        """
        seen = min((context + 1) / 2, self.window or context)
        return 2 * self.n_heads * (self.key_dim(d_model) + self.read_dim(d_model)) * seen

    def pass_operations(self, d_model: int, context: int) -> float:
        """A pass extends, rotates and copies the whole cache, even if it reads a single token."""
        return CACHED * self.recurrent_state_numbers(d_model) * min(context, self.window or context)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.n_heads, self.key_dim(d_model), self.read_dim(d_model)
        if self.latent_dim:  # q, k and its parts, v twice, the output; the latent before and after its norm and scale
            return ActivationMemory(
                H * (4 * K + 3 * V) + 4 * self.recurrent_state_numbers(d_model), workspace=0.3, bfloat16=0.5
            )
        G = self.heads(d_model)
        queries, keys = 3 * H * K, 3 * G * K  # q, q rotated and the output; k, k rotated and v
        queries += 2 * H * K * self.gate + 2 * H * K * self.qk_norm
        keys += 2 * G * K * self.qk_norm
        before = self.projected(d_model) if self.d_conv else 0  # inputs of the convolution
        return ActivationMemory(queries + keys + before, workspace=0.5, bfloat16=0.5)
