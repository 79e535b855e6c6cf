"""The second half of a block, position by position, that stands beside the mixers of Transformers, GLA and RWKV."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import Spec


class Mlp(Spec):
    """W_2 act(W_1 x) (GPT-NeoX, RetNet)."""

    kind: Literal["mlp"] = "mlp"
    d_hidden: PositiveInt
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"  # gelu_tanh: its approximation by a tanh
    bias: bool = False


class GatedMlp(Spec):
    """W_2 (act(W_g x) * W_1 x): SwiGLU with silu (GLA, Mistral), GeGLU with gelu (Griffin) (Shazeer 2020)."""

    kind: Literal["gated_mlp"] = "gated_mlp"
    d_hidden: PositiveInt
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"
    bias: bool = False


class RwkvChannelMix(Spec):
    """RWKV's channel mixing (Peng et al. 2023, eq. 18-20; 2024, Section 4): 4 D hidden in RWKV-4, 3.5 D in RWKV-6."""

    kind: Literal["rwkv_channel_mix"] = "rwkv_channel_mix"
    d_hidden: PositiveInt
    mix: Literal["before", "present"] = "before"  # which token the learned mixes weigh: RWKV-6's, or RWKV-4's


FfnSpec = Annotated[Mlp | GatedMlp | RwkvChannelMix, Field(discriminator="kind")]
