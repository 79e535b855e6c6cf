"""fla's delta rule: DeltaNet (model_type "delta_net"), Gated DeltaNet ("gated_deltanet"), KDA ("kda")."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.fla_parts import TIED, gated_mlp_size, per_head, rows_around
from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.delta_rule import DeltaRuleMixer
from ssm.specs.mixers.deltanet import DeltaNetMixer
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.mixers.kda import KdaMixer
from ssm.specs.model import ModelSpec

DEFAULTS = {
    "hidden_ratio": 4, "intermediate_size": None, "norm_eps": 1e-6, "tie_word_embeddings": False,
    "hidden_act": "swish", "use_short_conv": True, "conv_size": 4, "allow_neg_eigval": False,
}  # fmt: skip
# What ours have no other of: no attention layers, no residuals over layers, short convolutions without biases.
FIXED: dict[str, tuple[Any, ...]] = {
    "attn": (None,),
    "attnres_block_size": (None,),
    "use_short_conv": (True,),
    "conv_bias": (None, False),
    "hidden_act": ("swish", "silu"),
}
GATES = {"swish": "silu", "silu": "silu", "sigmoid": "sigmoid"}


def _fields(config: Config, mixer: Fields) -> tuple[Fields, int]:
    shared = {
        "d_conv": config["conv_size"],
        "negative_eigenvalues": config["allow_neg_eigval"],
        "norm_eps": config["norm_eps"],
    }
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "mixer": mixer | shared,
        "ffn": {"kind": "gated_mlp", "d_hidden": gated_mlp_size(config)},
        "norm_eps": config["norm_eps"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int, mixer: DeltaRuleMixer, own: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        **own,
        "conv_size": mixer.d_conv,
        "allow_neg_eigval": mixer.negative_eigenvalues,
        "intermediate_size": ffn_of(spec, GatedMlp).d_hidden,
        "norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }


def _sizes(spec: ModelSpec) -> dict[str, int]:
    """Of the slices of q, k, v, beta and what stands behind them; a gate that is not there has none."""
    mixer = spec.mixer
    assert isinstance(mixer, DeltaRuleMixer)
    H, K, V = mixer.state_shape(spec.d_model)
    gate = H * V * getattr(mixer, "gate", True)
    rank = mixer.rank(spec.d_model) if isinstance(mixer, KdaMixer) else 0
    return {
        "keys": mixer.key_heads * K, "values": H * V, "heads": H, "gate": gate, "rank": rank,
        "hidden": ffn_of(spec, GatedMlp).d_hidden,
    }  # fmt: skip


def _rows(behind: dict[str, str]) -> tuple[Row, ...]:
    """The rows of a model; `behind` are the names of what the projection makes behind beta, and their sizes."""
    names = {"q_proj": "keys", "k_proj": "keys", "v_proj": "values", "b_proj": "heads"} | behind
    return (
        *rows_around("model.layers.{i}.attn.o_norm.weight"),
        Row(
            "layers.{i}.mixer.in_proj.weight",
            tuple(f"model.layers.{{i}}.attn.{name}.weight" for name in names),
            parts=tuple(names.values()),
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


def _grouped(config: Config) -> Fields:
    """Heads and their sizes, of Gated DeltaNet and KDA."""
    H, G = config["num_v_heads"] or config["num_heads"], config["num_heads"]
    sizes = {"key_dim": config["head_dim"], "value_dim": int(config["head_dim"] * config["expand_v"])}
    return {"n_heads": H, "n_key_heads": G if G != H else None, **sizes}


def _heads(mixer: DeltaRuleMixer, d_model: int) -> dict[str, Any]:
    """The other way round."""
    H, K, V = mixer.state_shape(d_model)
    heads = {"num_heads": mixer.key_heads, "num_v_heads": H if mixer.key_heads != H else None}
    ratio = V / K
    return heads | {"head_dim": K, "expand_v": ratio if int(K * ratio) == V else math.nextafter(ratio, math.inf)}


def _deltanet(config: Config) -> tuple[Fields, int]:
    sizes = {"key_dim": per_head(config, "expand_k"), "value_dim": per_head(config, "expand_v")}
    return _fields(config, {"kind": "deltanet", "n_heads": config["num_heads"], "gate": config["use_gate"]} | sizes)


def _deltanet_config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, DeltaNetMixer)
    H, K, V = mixer.state_shape(spec.d_model)
    sizes = {"num_heads": H, "expand_k": H * K / spec.d_model, "expand_v": H * V / spec.d_model}
    return _config(spec, vocab_size, mixer, sizes | {"use_gate": mixer.gate})


def _gated(config: Config) -> tuple[Fields, int]:
    gate = {"gate": config["use_gate"], "gate_activation": GATES[config["output_gate_activation"]]}
    return _fields(config, {"kind": "gated_deltanet"} | _grouped(config) | gate)


def _gated_config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, GatedDeltaNetMixer)
    gate = {"use_gate": mixer.gate, "output_gate_activation": mixer.gate_activation}
    return _config(spec, vocab_size, mixer, _heads(mixer, spec.d_model) | gate)


def _kda(config: Config) -> tuple[Fields, int]:
    heads = _grouped(config)
    return _fields(config, {"kind": "kda", "gate_rank": heads["value_dim"]} | heads)


def _kda_config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, KdaMixer)
    return _config(spec, vocab_size, mixer, _heads(mixer, spec.d_model))


FLA_DELTANET = Format(
    key="fla_deltanet",
    title="fla's DeltaNet",
    model_type="delta_net",
    architecture="DeltaNetForCausalLM",
    rows=_rows({"g_proj": "gate"}),
    defaults=DEFAULTS | {
        "num_heads": 16, "expand_k": 1.0, "expand_v": 1.0, "use_gate": False, "use_beta": True, "qk_norm": "l2",
        "qk_activation": "silu",
    },
    fixed=FIXED | {"use_beta": (True,), "qk_norm": ("l2",), "qk_activation": ("silu",)},
    fields=_deltanet,
    config=_deltanet_config,
    tied=TIED,
    sizes=_sizes,
)  # fmt: skip
FLA_GATED_DELTANET = Format(
    key="fla_gated_deltanet",
    title="fla's Gated DeltaNet",
    model_type="gated_deltanet",
    architecture="GatedDeltaNetForCausalLM",
    rows=_rows({"a_proj": "heads", "g_proj": "gate"}),
    defaults=DEFAULTS | {
        "num_heads": 6, "num_v_heads": None, "head_dim": 256, "expand_v": 2.0, "use_gate": True,
        "output_gate_activation": "swish",
    },
    fixed=FIXED | {"output_gate_activation": tuple(GATES)},
    fields=_gated,
    config=_gated_config,
    tied=TIED,
    sizes=_sizes,
)  # fmt: skip
FLA_KDA = Format(
    key="fla_kda",
    title="fla's KDA",
    model_type="kda",
    architecture="KDAForCausalLM",
    rows=(
        *_rows({"f_proj.0": "rank", "g_proj.0": "rank"}),
        Row("layers.{i}.mixer.decay_proj.weight", "model.layers.{i}.attn.f_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.weight", "model.layers.{i}.attn.g_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.bias", "model.layers.{i}.attn.g_proj.1.bias"),
    ),
    defaults=DEFAULTS | {
        "num_heads": 16, "num_v_heads": None, "head_dim": 128, "expand_v": 1.0, "safe_gate": False, "lower_bound": None,
    },
    fixed=FIXED | {"safe_gate": (False,), "lower_bound": (None,)},  # a decay that is bounded below
    fields=_kda,
    config=_kda_config,
    tied=TIED,
    sizes=_sizes,
)  # fmt: skip
