"""Keys and rows that several of fla's formats share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ssm.models.formats.format import Row
from ssm.models.formats.keys import Config, Key
from ssm.models.formats.parts import SIZES, affine, ffn_sizes, gated_mlp
from ssm.specs.model import ModelSpec

HELPER = True


def hidden_keys(default: float, ratio: float, whole: Callable[[float], int]) -> tuple[Key, ...]:
    """The hidden width of the ffn: given, or a ratio of the model's width.

    Args:
        default: the ratio if config.json does not have it.
        ratio: the ratio if config.json has None.
        whole: rounds ratio times width.
    """

    def read(hidden: int | None, config: Config) -> int:
        if hidden is not None:
            return hidden
        given = config["hidden_ratio"]
        return whole(config["hidden_size"] * (ratio if given is None else given))

    return Key("hidden_ratio", default=default), Key("intermediate_size", "ffn.d_hidden", None, read=read)


def keys_around(ratio: float = 4) -> tuple[Key, ...]:
    """The keys that all formats of fla except RWKV share."""
    return (
        *SIZES,
        Key("norm_eps", ("norm_eps", "mixer.norm_eps"), 1e-6),
        *hidden_keys(ratio, 4, lambda width: 256 * -(-int(width * 2 / 3) // 256)),
        Key("tie_word_embeddings", "tie_embeddings", False),
        Key("hidden_act", only=("swish", "silu")),
        Key("attn", only=(None,)),
        Key("attnres_block_size", only=(None,)),
    )


# GLA and RetNet: no grouped heads, no short convolutions, a gate and an affine norm.
PLAIN = (
    Key("num_kv_heads", only=(None,)),
    Key("feature_map", only=(None,)),
    Key("use_short_conv", only=(False, None)),
    Key("use_output_gate", only=(True,)),
    Key("elementwise_affine", only=(True,)),
)


def rwkv_keys(ratio: float) -> tuple[Key, ...]:
    """The keys of an RWKV format, except those of its time mixing and of the epsilon of its norms."""
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
    """The width of a head's keys or values: their value times hidden_size / num_heads."""

    def write(mixer: Any, D: int) -> float:
        H, K, V = mixer.state_shape(D)
        return H * (K if ours == "mixer.key_dim" else V) / D

    return Key(theirs, ours, default, read=lambda value, config: per_head(config, theirs), write=write)


def per_head(config: Config, expand: str) -> int:
    """expand * hidden_size / num_heads.

    Raises:
        ValueError: the result is not an integer.
    """
    total = config["hidden_size"] * config[expand]
    heads = config["num_heads"]
    if round(total) % heads or abs(round(total) - total) > 1e-6 * total:
        raise ValueError(f"{expand} * hidden_size = {total:g} is not a multiple of num_heads = {heads}")
    return round(total) // heads


G_NORM = "model.layers.{i}.attn.g_norm_swish_gate.weight|model.layers.{i}.attn.g_norm.weight"


def rows_around(projected: dict[str, str], norm: str = G_NORM) -> tuple[Row, ...]:
    """The rows that all formats of fla except RWKV share: norms, gated MLP, input and output projection of the mixer.

    Args:
        projected: names and sizes of the parts of the input projection.
        norm: name of the norm before the output projection.
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
    """Sizes of keys, values and the hidden layer of the MLP."""
    mixer: Any = spec.mixer
    H, K, V = mixer.state_shape(spec.d_model)
    return {"keys": getattr(mixer, "key_heads", H) * K, "values": H * V} | ffn_sizes(spec)


def layer_norm_rows() -> tuple[Row, ...]:
    """The rows of RWKV's embedding, head and layer norms."""
    return (
        Row("embedding.weight", "model.embeddings.weight"),
        Row("head.weight", "lm_head.weight"),
        *affine("embedding_norm", "model.layers.0.pre_norm"),
        *affine("layers.{i}.norm", "model.layers.{i}.attn_norm"),
        *affine("layers.{i}.ffn_norm", "model.layers.{i}.ffn_norm"),
        *affine("norm", "model.norm"),
    )
