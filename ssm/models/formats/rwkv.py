"""transformers' RWKV, version 4 (model_type "rwkv").

transformers halves the activations every few layers at inference (rescale_every), because of float16. ssm does not: the
norms that follow undo it, up to their epsilon.
"""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.parts import SIZES, affine

MIX = "1 1 d -> d"


def _same_width(width: int | None, config: Config) -> Fields:
    if width not in (None, 0, config["hidden_size"]):
        raise ValueError(f"attention_hidden_size is {width}; ssm supports only hidden_size")
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
        Key("layer_norm_epsilon", "norm_eps", only=(1e-5,)),  # its last norm always uses 1e-5
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
    rows=(
        Row("embedding.weight", "rwkv.embeddings.weight"),
        *affine("embedding_norm", "rwkv.blocks.0.pre_ln"),
        *affine("layers.{i}.norm", "rwkv.blocks.{i}.ln1"),
        *affine("layers.{i}.ffn_norm", "rwkv.blocks.{i}.ln2"),
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
        *affine("norm", "rwkv.ln_out"),
        Row("head.weight", "head.weight"),
    ),
    tied=("rwkv.embeddings.weight", "head.weight"),
)
register(RWKV)
