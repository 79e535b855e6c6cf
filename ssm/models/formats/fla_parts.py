"""What fla's models read and write in the same way."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Row
from ssm.models.formats.parts import ffn_of
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix
from ssm.specs.model import ModelSpec

TIED = ("model.embeddings.weight", "lm_head.weight")

# What ours have no other of: no attention layers, no grouped heads, no short convolutions, a gate and an affine norm.
FIXED = {
    "attn": (None,),
    "attnres_block_size": (None,),
    "num_kv_heads": (None,),
    "feature_map": (None,),
    "use_short_conv": (False, None),
    "use_output_gate": (True,),
    "elementwise_affine": (True,),
    "hidden_act": ("swish", "silu"),
}


G_NORM = "model.layers.{i}.attn.g_norm_swish_gate.weight|model.layers.{i}.attn.g_norm.weight"


def rows_around(norm: str = G_NORM) -> tuple[Row, ...]:
    """The rows that all but RWKV share: RMSNorms, a gated MLP, and the norm and projection behind the recurrence."""
    gated = tuple(f"model.layers.{{i}}.mlp.{name}_proj.weight" for name in ("gate", "up"))
    return (
        Row("embedding.weight", "model.embeddings.weight"),
        Row("layers.{i}.norm.weight", "model.layers.{i}.attn_norm.weight"),
        Row("layers.{i}.ffn_norm.weight", "model.layers.{i}.mlp_norm.weight"),
        Row("layers.{i}.mixer.norm_weight", norm),
        Row("layers.{i}.mixer.out_proj.weight", "model.layers.{i}.attn.o_proj.weight"),
        Row("layers.{i}.ffn.up_proj.weight", gated, parts=("hidden", "hidden")),
        Row("layers.{i}.ffn.down_proj.weight", "model.layers.{i}.mlp.down_proj.weight"),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    )


def layer_norm_rows() -> tuple[Row, ...]:
    """The rows of RWKV's model around the mixers, in weights and biases."""
    norms = {
        "embedding_norm": "model.layers.0.pre_norm",
        "layers.{i}.norm": "model.layers.{i}.attn_norm",
        "layers.{i}.ffn_norm": "model.layers.{i}.ffn_norm",
        "norm": "model.norm",
    }
    both = ("weight", "bias")
    return (
        Row("embedding.weight", "model.embeddings.weight"),
        Row("head.weight", "lm_head.weight"),
        *(Row(f"{ours}.{kind}", f"{theirs}.{kind}") for ours, theirs in norms.items() for kind in both),
    )


def rwkv_fields(config: Config, mixer: Fields, ratio: float, **ffn: Any) -> tuple[Fields, int]:
    """The fields of an RWKV's spec, and its vocabulary; `ratio`: of the widths, where config.json is silent."""
    width = config["hidden_size"]
    ratio = ratio if config["hidden_ratio"] is None else config["hidden_ratio"]
    hidden = config["intermediate_size"] or 32 * -(-int(width * ratio) // 32)
    fields = {
        "d_model": width,
        "n_layers": config["num_hidden_layers"],
        "mixer": mixer,
        "ffn": {"kind": "rwkv_channel_mix", "d_hidden": hidden, **ffn},
        "norm": "layer",
        "norm_eps": config["norm_eps"],
        "embedding_norm": config["norm_first"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def rwkv_config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    """A config.json of an RWKV, but for what it says of the time mixing."""
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_heads": spec.mixer.heads(spec.d_model),
        "intermediate_size": ffn_of(spec, RwkvChannelMix).d_hidden,
        "norm_first": spec.embedding_norm,
        "norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }


def per_head(config: Config, expand: str) -> int:
    """The width of a head's keys or values: expand * hidden_size / num_heads.

    Raises:
        ValueError: that is no whole number.
    """
    total = config["hidden_size"] * config[expand]
    heads = config["num_heads"]
    if round(total) % heads or abs(round(total) - total) > 1e-6 * total:
        raise ValueError(f"{expand} * hidden_size = {total:g} is no multiple of num_heads = {heads}")
    return round(total) // heads


def gated_mlp_size(config: Config) -> int:
    """Hidden width of the gated MLP: 2 / 3 of hidden_ratio times the model's, rounded up to a multiple of 256."""
    if config["intermediate_size"] is not None:
        return config["intermediate_size"]
    ratio = 4 if config["hidden_ratio"] is None else config["hidden_ratio"]
    return 256 * -(-int(config["hidden_size"] * ratio * 2 / 3) // 256)
