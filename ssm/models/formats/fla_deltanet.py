"""fla's models with the delta rule: DeltaNet ("delta_net"), Gated DeltaNet ("gated_deltanet") and KDA ("kda")."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.fla_parts import expanded, keys_around, rows_around, sizes_of
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Key
from ssm.specs.mixers.delta_rule import DeltaRuleMixer
from ssm.specs.mixers.kda import KdaMixer
from ssm.specs.model import ModelSpec

KEYS = (
    *keys_around(),
    Key("conv_size", "mixer.d_conv", 4),
    Key("allow_neg_eigval", "mixer.negative_eigenvalues", False),
    Key("use_short_conv", only=(True,)),
    Key("conv_bias", only=(None, False)),
)
GATES = {"swish": "silu", "silu": "silu", "sigmoid": "sigmoid"}


def _heads(heads: int | None, config: Config) -> int:
    return heads or config["num_heads"]


def _key_heads(groups: int, config: Config) -> int | None:
    return groups if groups != (config["num_v_heads"] or groups) else None


def _num_v_heads(mixer: DeltaRuleMixer, D: int) -> int | None:
    return mixer.n_heads if mixer.n_heads != mixer.key_heads else None


def _values(ratio: float, config: Config) -> int:
    return int(config["head_dim"] * ratio)


def _expand_v(mixer: DeltaRuleMixer, D: int) -> float:
    _, K, V = mixer.state_shape(D)
    ratio = V / K
    return ratio if int(K * ratio) == V else math.nextafter(ratio, math.inf)


def _grouped(heads: int, head_dim: int, expand_v: float, *values: str) -> tuple[Key, ...]:
    """The keys of heads and their sizes in Gated DeltaNet and KDA.

    Args:
        values: our fields that equal the size of a value.
    """
    return (
        Key("num_heads", "mixer.n_key_heads", heads, read=_key_heads),
        Key("num_v_heads", "mixer.n_heads", None, read=_heads, write=_num_v_heads),
        Key("head_dim", "mixer.key_dim", head_dim),
        Key("expand_v", values, expand_v, read=_values, write=_expand_v),
    )


def _sizes(spec: ModelSpec) -> dict[str, int]:
    """Sizes of q, k, v, beta and of the parts after them in the input projection. A missing gate has size 0."""
    mixer: Any = spec.mixer
    sizes = sizes_of(spec)
    gate = sizes["values"] * getattr(mixer, "gate", True)
    rank = mixer.rank(spec.d_model) if isinstance(mixer, KdaMixer) else 0
    return sizes | {"heads": mixer.n_heads, "gate": gate, "rank": rank}


def _rows(behind: dict[str, str]) -> tuple[Row, ...]:
    """The rows of a model.

    Args:
        behind: names and sizes of the parts after beta in the input projection.
    """
    return (
        *rows_around(
            {"q_proj": "keys", "k_proj": "keys", "v_proj": "values", "b_proj": "heads"} | behind,
            norm="model.layers.{i}.attn.o_norm.weight",
        ),
        Row(
            "layers.{i}.mixer.conv_weight",
            tuple(f"model.layers.{{i}}.attn.{name}_conv1d.weight" for name in "qkv"),
            "c 1 k -> c k",
            ("keys", "keys", "values"),
        ),
        Row("layers.{i}.mixer.A_log", "model.layers.{i}.attn.A_log"),
        Row("layers.{i}.mixer.dt_bias", "model.layers.{i}.attn.dt_bias"),
    )


FLA_DELTANET = Format(
    key="fla_deltanet",
    title="fla's DeltaNet",
    model_type="delta_net",
    architecture="DeltaNetForCausalLM",
    ours={"mixer": {"kind": "deltanet"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        Key("num_heads", "mixer.n_heads", 16),
        expanded("expand_k", "mixer.key_dim", 1.0),
        expanded("expand_v", "mixer.value_dim", 1.0),
        Key("use_gate", "mixer.gate", False),
        Key("use_beta", only=(True,)),
        Key("qk_norm", only=("l2",)),
        Key("qk_activation", only=("silu",)),
    ),
    rows=_rows({"g_proj": "gate"}),
    sizes=_sizes,
)
register(FLA_DELTANET)

FLA_GATED_DELTANET = Format(
    key="fla_gated_deltanet",
    title="fla's Gated DeltaNet",
    model_type="gated_deltanet",
    architecture="GatedDeltaNetForCausalLM",
    ours={"mixer": {"kind": "gated_deltanet"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        *_grouped(6, 256, 2.0, "mixer.value_dim"),
        Key("use_gate", "mixer.gate", True),
        Key("output_gate_activation", "mixer.gate_activation", only=GATES),
    ),
    rows=_rows({"a_proj": "heads", "g_proj": "gate"}),
    sizes=_sizes,
)
register(FLA_GATED_DELTANET)

FLA_KDA = Format(
    key="fla_kda",
    title="fla's KDA",
    model_type="kda",
    architecture="KDAForCausalLM",
    ours={"mixer": {"kind": "kda"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        *_grouped(16, 128, 1.0, "mixer.value_dim", "mixer.gate_rank"),
        Key("safe_gate", only=(False,)),  # True: the decay has a lower bound
        Key("lower_bound", only=(None,)),
    ),
    rows=(
        *_rows({"f_proj.0": "rank", "g_proj.0": "rank"}),
        Row("layers.{i}.mixer.decay_proj.weight", "model.layers.{i}.attn.f_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.weight", "model.layers.{i}.attn.g_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.bias", "model.layers.{i}.attn.g_proj.1.bias"),
    ),
    sizes=_sizes,
)
register(FLA_KDA)
