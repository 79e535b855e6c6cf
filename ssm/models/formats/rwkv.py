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


AT, THERE = "layers.{i}.", "rwkv.blocks.{i}."
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
        *affine(f"{AT}norm", f"{THERE}ln1"),
        *affine(f"{AT}ffn_norm", f"{THERE}ln2"),
        Row(f"{AT}mixer.time_decay", f"{THERE}attention.time_decay"),
        Row(f"{AT}mixer.time_first", f"{THERE}attention.time_first"),
        Row(f"{AT}mixer.mix_key", f"{THERE}attention.time_mix_key", MIX),
        Row(f"{AT}mixer.mix_value", f"{THERE}attention.time_mix_value", MIX),
        Row(f"{AT}mixer.mix_receptance", f"{THERE}attention.time_mix_receptance", MIX),
        Row(f"{AT}mixer.key.weight", f"{THERE}attention.key.weight"),
        Row(f"{AT}mixer.value.weight", f"{THERE}attention.value.weight"),
        Row(f"{AT}mixer.receptance.weight", f"{THERE}attention.receptance.weight"),
        Row(f"{AT}mixer.out_proj.weight", f"{THERE}attention.output.weight"),
        Row(f"{AT}ffn.key_mix", f"{THERE}feed_forward.time_mix_key", MIX),
        Row(f"{AT}ffn.receptance_mix", f"{THERE}feed_forward.time_mix_receptance", MIX),
        Row(f"{AT}ffn.key.weight", f"{THERE}feed_forward.key.weight"),
        Row(f"{AT}ffn.receptance.weight", f"{THERE}feed_forward.receptance.weight"),
        Row(f"{AT}ffn.value.weight", f"{THERE}feed_forward.value.weight"),
        *affine("norm", "rwkv.ln_out"),
        Row("head.weight", "head.weight"),
    ),
)
register(RWKV)
