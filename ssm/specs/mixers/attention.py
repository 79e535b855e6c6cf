"""Softmax attention's spec."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from ssm.specs.base import without
from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.part import Kept, last_inputs, linear, short_convolution


class AttentionMixer(MixerSpecBase):
    """Causal softmax attention (Vaswani et al. 2017) with rotary positions (Su et al. 2021): its cache is its state.

    With rotary_pct 0.25 and biases it is GPT-NeoX's (Pythia); with grouped heads and a window, Mistral's; with norms of
    queries and keys and a gate, Qwen3.5's; with a convolution, that of mamba_ssm's hybrids.
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Softmax attention",
        paper="Vaswani et al. 2017",
        scan="none",
        decay="cache",
        input_dependent=True,
        complex=False,
        recurrence="cache_t = (cache_{t-1}, k_t, v_t),  y_t = sum_s softmax_s(q_t^T k_s / sqrt(K)) v_s",
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

    @model_serializer(mode="wrap")
    def _as_before_these_fields(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What goes without saying is left out: the ids of runs are older than the fields."""
        return without(plain(self), qk_norm=False, gate=False, norm_eps=1e-6, d_conv=None)

    def check(self, d_model: int) -> None:
        if self.head_dim is None and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give head_dim")
        if self.n_heads % self.heads(d_model):
            raise ValueError(f"n_kv_heads {self.n_kv_heads} must divide n_heads {self.n_heads}")
        if self.rotary_dim(d_model) % 2:
            raise ValueError(f"rotary_pct {self.rotary_pct:g} rotates {self.rotary_dim(d_model)} dimensions, not pairs")

    def heads(self, d_model: int) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def taps(self) -> int:
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
        return int((self.head_dim or d_model // self.n_heads) * self.rotary_pct)

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.heads(d_model), 1, 2, self.head_dim or d_model // self.n_heads)

    def projected(self, d_model: int) -> int:
        """Numbers of q, its gate, k and v of one token."""
        G, _, _, K = self.state_shape(d_model)
        return ((1 + self.gate) * self.n_heads + 2 * G) * K

    def parameters(self, d_model: int) -> int:
        D, projected, K = d_model, self.projected(d_model), self.state_shape(d_model)[-1]
        convolution = short_convolution(projected, self.d_conv) if self.d_conv else 0
        norms = 2 * K * self.qk_norm
        return linear(D, projected, self.bias) + convolution + norms + linear(self.n_heads * K, D, self.output_bias)

    def state_numbers(self, d_model: int, context: int) -> int:
        """Keys and values: of all tokens, or of a window with the token that reads it, which is one more than stays."""
        last = last_inputs(self.projected(d_model), self.taps)
        return self.memory_numbers(d_model) * (self.window or context) + last

    def state_operations(self, d_model: int, context: int) -> float:
        """Four a head's dimension and token seen: (context + 1) / 2 of them on average, the window at most."""
        seen = min((context + 1) / 2, self.window or context)
        return 4 * self.n_heads * self.state_shape(d_model)[-1] * seen

    def kept(self, d_model: int) -> Kept:
        G, _, _, K = self.state_shape(d_model)
        queries, keys = 3 * self.n_heads * K, 3 * G * K  # q, q rotated and the output; k, k rotated and v
        queries += 2 * self.n_heads * K * self.gate + 2 * self.n_heads * K * self.qk_norm
        keys += 2 * G * K * self.qk_norm
        before = self.projected(d_model) if self.d_conv else 0  # what the convolution reads
        return Kept(queries + keys + before, workspace=0.5, bfloat16=0.5)
