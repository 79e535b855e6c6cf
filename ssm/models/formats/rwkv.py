"""transformers' RWKV, version 4 (model_type "rwkv").

Its halving of activations every few layers at inference (rescale_every) is for float16: behind a norm it changes no
more than the share of the norm's epsilon, and is not done here.
"""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.parts import SIZES

MIX = "1 1 d -> d"


def _same_width(width: int | None, config: Config) -> Fields:
    if width not in (None, 0, config["hidden_size"]):
        raise ValueError(f"attention_hidden_size is {width}; known is hidden_size alone")
    return {}


RWKV = Format(
    key="rwkv",
    title="transformers' RWKV",
    model_type="rwkv",
    architecture="RwkvForCausalLM",
    ours={
        "mixer": {"kind": "rwkv4"},
        "ffn": {"kind": "rwkv_channel_mix", "mix": "present"},
        "norm": "layer",
        "embedding_norm": True,
    },
    keys=(
        *SIZES,
        Key("attention_hidden_size", "mixer", None, read=_same_width, write=lambda mixer, D: D),
        Key("intermediate_size", "ffn.d_hidden", None, read=lambda width, config: width or 4 * config["hidden_size"]),
        Key("layer_norm_epsilon", "norm_eps", only=(1e-5,)),  # its last norm has no other
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
    rows=(
        Row("embedding.weight", "rwkv.embeddings.weight"),
        Row("embedding_norm.weight", "rwkv.blocks.0.pre_ln.weight"),
        Row("embedding_norm.bias", "rwkv.blocks.0.pre_ln.bias"),
        Row("layers.{i}.norm.weight", "rwkv.blocks.{i}.ln1.weight"),
        Row("layers.{i}.norm.bias", "rwkv.blocks.{i}.ln1.bias"),
        Row("layers.{i}.ffn_norm.weight", "rwkv.blocks.{i}.ln2.weight"),
        Row("layers.{i}.ffn_norm.bias", "rwkv.blocks.{i}.ln2.bias"),
        Row("layers.{i}.mixer.time_decay", "rwkv.blocks.{i}.attention.time_decay"),
        Row("layers.{i}.mixer.time_first", "rwkv.blocks.{i}.attention.time_first"),
        Row("layers.{i}.mixer.mix_key", "rwkv.blocks.{i}.attention.time_mix_key", MIX),
        Row("layers.{i}.mixer.mix_value", "rwkv.blocks.{i}.attention.time_mix_value", MIX),
        Row("layers.{i}.mixer.mix_receptance", "rwkv.blocks.{i}.attention.time_mix_receptance", MIX),
        Row("layers.{i}.mixer.key.weight", "rwkv.blocks.{i}.attention.key.weight"),
        Row("layers.{i}.mixer.value.weight", "rwkv.blocks.{i}.attention.value.weight"),
        Row("layers.{i}.mixer.receptance.weight", "rwkv.blocks.{i}.attention.receptance.weight"),
        Row("layers.{i}.mixer.out_proj.weight", "rwkv.blocks.{i}.attention.output.weight"),
        Row("layers.{i}.ffn.key_mix", "rwkv.blocks.{i}.feed_forward.time_mix_key", MIX),
        Row("layers.{i}.ffn.receptance_mix", "rwkv.blocks.{i}.feed_forward.time_mix_receptance", MIX),
        Row("layers.{i}.ffn.key.weight", "rwkv.blocks.{i}.feed_forward.key.weight"),
        Row("layers.{i}.ffn.receptance.weight", "rwkv.blocks.{i}.feed_forward.receptance.weight"),
        Row("layers.{i}.ffn.value.weight", "rwkv.blocks.{i}.feed_forward.value.weight"),
        Row("norm.weight", "rwkv.ln_out.weight"),
        Row("norm.bias", "rwkv.ln_out.bias"),
        Row("head.weight", "head.weight"),
    ),
    tied=("rwkv.embeddings.weight", "head.weight"),
)
register(RWKV)
