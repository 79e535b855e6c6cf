"""fla's RetNet (model_type "retnet")."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.fla_parts import FIXED, TIED, gated_mlp_size, per_head, rows_around
from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.retnet import RetNetMixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    mixer = {
        "kind": "retnet",
        "n_heads": config["num_heads"],
        "key_dim": per_head(config, "expand_k"),
        "value_dim": per_head(config, "expand_v"),
        "norm": "rms",
        "norm_eps": config["norm_eps"],
    }
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "mixer": mixer,
        "ffn": {"kind": "gated_mlp", "d_hidden": gated_mlp_size(config)},
        "norm_eps": config["norm_eps"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    H, K, V = mixer_of(spec, RetNetMixer).state_shape(spec.d_model)
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_heads": H,
        "expand_k": H * K / spec.d_model,
        "expand_v": H * V / spec.d_model,
        "intermediate_size": ffn_of(spec, GatedMlp).d_hidden,
        "norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }


def _sizes(spec: ModelSpec) -> dict[str, int]:
    H, K, V = mixer_of(spec, RetNetMixer).state_shape(spec.d_model)
    return {"keys": H * K, "values": H * V, "hidden": ffn_of(spec, GatedMlp).d_hidden}


FLA_RETNET = Format(
    key="fla_retnet",
    title="fla's RetNet",
    model_type="retnet",
    architecture="RetNetForCausalLM",
    rows=(
        *rows_around(),
        Row(
            "layers.{i}.mixer.in_proj.weight",
            tuple(f"model.layers.{{i}}.attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "g_proj")),
            parts=("keys", "keys", "values", "values"),
        ),
    ),
    defaults={
        "num_heads": 8, "expand_k": 1.0, "expand_v": 2.0, "hidden_ratio": 2, "intermediate_size": None,
        "norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "swish", "use_output_gate": True,
        "elementwise_affine": True,
    },
    fixed=FIXED,
    fields=_fields,
    config=_config,
    tied=TIED,
    sizes=_sizes,
)  # fmt: skip
