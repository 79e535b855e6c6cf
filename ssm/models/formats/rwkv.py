"""transformers' RWKV, version 4 (model_type "rwkv").

Its halving of activations every few layers at inference (rescale_every) is for float16: behind a norm it changes no
more than the share of the norm's epsilon, and is not done here.
"""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix
from ssm.specs.mixers.rwkv4 import Rwkv4Mixer
from ssm.specs.model import ModelSpec

MIX = "1 1 d -> d"


def _fields(config: Config) -> tuple[Fields, int]:
    width = config["hidden_size"]
    if (config["attention_hidden_size"] or width) != width:
        raise ValueError(f"attention_hidden_size is {config['attention_hidden_size']}; known is hidden_size alone")
    fields = {
        "d_model": width,
        "n_layers": config["num_hidden_layers"],
        "mixer": {"kind": "rwkv4"},
        "ffn": {"kind": "rwkv_channel_mix", "d_hidden": config["intermediate_size"] or 4 * width, "mix": "present"},
        "norm": "layer",
        "embedding_norm": True,
        "norm_eps": config["layer_norm_epsilon"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer_of(spec, Rwkv4Mixer)
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "attention_hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "intermediate_size": ffn_of(spec, RwkvChannelMix).d_hidden,
        "layer_norm_epsilon": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }


RWKV = Format(
    key="rwkv",
    title="transformers' RWKV",
    model_type="rwkv",
    architecture="RwkvForCausalLM",
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
    defaults={
        "attention_hidden_size": None, "intermediate_size": None, "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": False,
    },
    fixed={"layer_norm_epsilon": (1e-5,)},  # its last norm has no other
    fields=_fields,
    config=_config,
    tied=("rwkv.embeddings.weight", "head.weight"),
)  # fmt: skip
