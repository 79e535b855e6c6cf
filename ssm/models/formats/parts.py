"""Keys and rows that several formats share."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar

from ssm.models.formats.format import Row
from ssm.models.formats.keys import NOTHING, Config, Key
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.base import MixerSpecBase
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec

HELPER = True

M = TypeVar("M", bound=MixerSpecBase)
LINEAR, FULL = "linear_attention", "full_attention"  # in transformers' layer_types


def mixer_of(spec: ModelSpec, kind: type[M]) -> M:
    """The model's mixer.

    Raises:
        ValueError: it has another kind.
    """
    if not isinstance(spec.mixer, kind):
        raise ValueError(f"its mixer is {spec.mixer.kind}")
    return spec.mixer


SIZES = (Key("hidden_size", "d_model"), Key("num_hidden_layers", "n_layers"))  # in transformers and in fla


def dt_rank(theirs: str, ours: str, width: str) -> Key:
    """The rank of the projection to dt, which can be "auto"; `width`: the key of the model's width."""

    def read(rank: int | str, config: Config) -> int | str:
        return -(-config[width] // 16) if rank == "auto" else rank

    return Key(theirs, ours, "auto", read=read)


def dt_limit(theirs: str, ours: str) -> Key:
    """The limits of dt. Our upper limit is None if theirs is infinite."""

    def read(pair: Sequence[float], config: Config) -> tuple[float, float | None]:
        low, high = pair
        return float(low), None if math.isinf(high) else float(high)

    def write(mixer: Mamba2Mixer, D: int) -> Any:
        low, high = mixer.dt_limit
        return NOTHING if (low, high) == (0.0, None) else [low, math.inf if high is None else high]

    return Key(theirs, ours, (0.0, math.inf), read=read, write=write)


def rotary(theirs: str, ours: str, default: float, newer: str | None = None) -> Key:
    """A key of rotary positions. transformers' new files have it inside "rope_parameters", old files at the top level.

    Args:
        newer: its name in "rope_parameters", if different.
    """

    def read(value: float, config: Config) -> float:
        given, scaling = config.get("rope_parameters") or {}, config.get("rope_scaling")
        if scaling is not None or given.get("rope_type", given.get("type", "default")) != "default":
            raise ValueError(f"ssm does not support scaled rotary positions ({scaling or given})")
        return float(given.get(newer or theirs, value))

    return Key(theirs, ours, default, read=read)


def layer_types(attention: Callable[[Config], Container[int]]) -> Key:
    """The list of the kinds of all layers, as in transformers.

    Args:
        attention: the attention layers, counted from 0, if config.json has no list.
    """

    def read(types: list[str] | None, config: Config) -> dict[int, str]:
        layers = config["num_hidden_layers"]
        types = types or [FULL if i in attention(config) else LINEAR for i in range(layers)]
        if len(types) != layers or not set(types) <= {LINEAR, FULL} or LINEAR not in types:
            raise ValueError(f"layer_types is {types}, expected {layers} of {LINEAR} and {FULL}")
        return {i: "attention" for i, kind in enumerate(types) if kind == FULL}

    def write(spec: ModelSpec, D: int) -> list[str]:
        return [FULL if mixer.kind == "attention" else LINEAR for mixer in spec.mixers()]

    return Key("layer_types", "mixer_at", None, read=read, write=write)


def affine(ours: str, theirs: str) -> tuple[Row, ...]:
    """The rows of a weight and a bias."""
    return tuple(Row(f"{ours}.{kind}", f"{theirs}.{kind}") for kind in ("weight", "bias"))


def attention_sizes(spec: ModelSpec) -> dict[str, int]:
    """Sizes of the queries (with their gates) and of the keys in all heads; {}: the model has no attention."""
    for mixer in spec.mixers():
        if isinstance(mixer, AttentionMixer):
            groups, _, _, head = mixer.state_shape(spec.d_model)
            return {"queries": (1 + mixer.gate) * mixer.n_heads * head, "keys": groups * head}
    return {}


def ffn_sizes(spec: ModelSpec) -> dict[str, int]:
    """Hidden sizes of the gated MLPs and of the shared experts, if there are any."""
    sizes = {}
    for ffn in spec.ffns():
        if isinstance(ffn, GatedMlp):
            sizes["hidden"] = ffn.d_hidden
        elif isinstance(ffn, Experts):
            sizes["shared"] = ffn.d_shared
    return sizes


def gated_mlp(
    theirs: str, ours: str = "layers.{i}.ffn.", hidden: str = "hidden", kind: str = "weight"
) -> tuple[Row, ...]:
    """The rows of a gated MLP.

    Args:
        theirs: prefix of their names, or alternatives with | between them.
        ours: prefix of our names.
        hidden: key of its width in the format's sizes.
        kind: "weight" or "bias".
    """

    def named(name: str) -> str:
        return "|".join(f"{start}{name}_proj.{kind}" for start in theirs.split("|"))

    return (
        Row(f"{ours}up_proj.{kind}", (named("gate"), named("up")), parts=(hidden, hidden)),
        Row(f"{ours}down_proj.{kind}", named("down")),
    )
