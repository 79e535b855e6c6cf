"""What fla's models read and write in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ssm.models.formats.format import Row
from ssm.models.formats.keys import Config, Key
from ssm.models.formats.parts import SIZES, ffn_of, gated_mlp
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.model import ModelSpec

HELPER = True

TIED = ("model.embeddings.weight", "lm_head.weight")


def hidden_keys(default: float, ratio: float, whole: Callable[[float], int]) -> tuple[Key, ...]:
    """The hidden width of the ffn, given or by its ratio to the model's.

    Args:
        default: the ratio, where config.json is silent.
        ratio: the ratio, where config.json says None.
        whole: what the ratio times the model's width is rounded to.
    """

    def read(hidden: int | None, config: Config) -> int:
        if hidden is not None:
            return hidden
        given = config["hidden_ratio"]
        return whole(config["hidden_size"] * (ratio if given is None else given))

    return Key("hidden_ratio", default=default), Key("intermediate_size", "ffn.d_hidden", None, read=read)


def keys_around(ratio: float = 4) -> tuple[Key, ...]:
    """The keys that all but RWKV share: the sizes, the gated MLP, and what ours have no other of."""
    return (
        *SIZES,
        Key("norm_eps", ("norm_eps", "mixer.norm_eps"), 1e-6),
        *hidden_keys(ratio, 4, lambda width: 256 * -(-int(width * 2 / 3) // 256)),
        Key("tie_word_embeddings", "tie_embeddings", False),
        Key("hidden_act", only=("swish", "silu")),
        Key("attn", only=(None,)),
        Key("attnres_block_size", only=(None,)),
    )


# Of GLA and RetNet: no grouped heads, no short convolutions, a gate and an affine norm.
PLAIN = (
    Key("num_kv_heads", only=(None,)),
    Key("feature_map", only=(None,)),
    Key("use_short_conv", only=(False, None)),
    Key("use_output_gate", only=(True,)),
    Key("elementwise_affine", only=(True,)),
)


def rwkv_keys(ratio: float) -> tuple[Key, ...]:
    """The keys of an RWKV, but for its time mixing and the epsilon of its norms."""
    return (
        *SIZES,
        *hidden_keys(ratio, ratio, lambda width: 32 * -(-int(width) // 32)),
        Key("norm_first", "embedding_norm", True),
        Key("tie_word_embeddings", "tie_embeddings", False),
        Key("hidden_act", only=("sqrelu",)),
        Key("norm_bias", only=(True,)),
        Key("attn", only=(None,)),
    )


def expanded(theirs: str, ours: str, default: float) -> Key:
    """The width of a head's keys or values: theirs times hidden_size over num_heads."""

    def write(mixer: Any, D: int) -> float:
        H, K, V = mixer.state_shape(D)
        return H * (K if ours == "mixer.key_dim" else V) / D

    return Key(theirs, ours, default, read=lambda value, config: per_head(config, theirs), write=write)


def per_head(config: Config, expand: str) -> int:
    """expand * hidden_size / num_heads.

    Raises:
        ValueError: that is no whole number.
    """
    total = config["hidden_size"] * config[expand]
    heads = config["num_heads"]
    if round(total) % heads or abs(round(total) - total) > 1e-6 * total:
        raise ValueError(f"{expand} * hidden_size = {total:g} is no multiple of num_heads = {heads}")
    return round(total) // heads


G_NORM = "model.layers.{i}.attn.g_norm_swish_gate.weight|model.layers.{i}.attn.g_norm.weight"


def rows_around(projected: dict[str, str], norm: str = G_NORM) -> tuple[Row, ...]:
    """The rows that all but RWKV share: norms, a gated MLP, and the projections before and behind the recurrence.

    Args:
        projected: the names of what is projected before it, and their sizes.
    """
    return (
        Row("embedding.weight", "model.embeddings.weight"),
        Row("layers.{i}.norm.weight", "model.layers.{i}.attn_norm.weight"),
        Row("layers.{i}.ffn_norm.weight", "model.layers.{i}.mlp_norm.weight"),
        Row(
            "layers.{i}.mixer.in_proj.weight",
            tuple(f"model.layers.{{i}}.attn.{name}.weight" for name in projected),
            parts=tuple(projected.values()),
        ),
        Row("layers.{i}.mixer.norm_weight", norm),
        Row("layers.{i}.mixer.out_proj.weight", "model.layers.{i}.attn.o_proj.weight"),
        *gated_mlp("model.layers.{i}.mlp."),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    )


def sizes_of(spec: ModelSpec) -> dict[str, int]:
    """Of what these projections make."""
    mixer: Any = spec.mixer
    H, K, V = mixer.state_shape(spec.d_model)
    return {"keys": getattr(mixer, "key_heads", H) * K, "values": H * V, "hidden": ffn_of(spec, GatedMlp).d_hidden}


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
