"""fla's RWKV-6 (model_type "rwkv6")."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.fla_parts import TIED, layer_norm_rows, per_head, rwkv_config, rwkv_fields
from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import mixer_of
from ssm.specs.mixers.rwkv6 import Rwkv6Mixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    mixer = {
        "kind": "rwkv6",
        "head_dim": per_head(config, "expand_k"),
        "shift_rank": config["proj_low_rank_dim"],
        "decay_rank": config["gate_low_rank_dim"],
        "norm_eps": config["norm_eps"],
    }
    return rwkv_fields(config, mixer, ratio=3.5)


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, Rwkv6Mixer)
    return rwkv_config(spec, vocab_size) | {
        "expand_k": 1.0,
        "expand_v": 1.0,
        "proj_low_rank_dim": mixer.shift_rank,
        "gate_low_rank_dim": mixer.decay_rank,
    }


FLA_RWKV6 = Format(
    key="fla_rwkv6",
    title="fla's RWKV-6",
    model_type="rwkv6",
    architecture="RWKV6ForCausalLM",
    rows=(
        *layer_norm_rows(),
        Row("layers.{i}.mixer.shift_mix", "model.layers.{i}.attn.x_proj.0.mu"),
        Row("layers.{i}.mixer.shift_base", "model.layers.{i}.attn.x_bias", "mixed d -> mixed d"),
        Row(
            "layers.{i}.mixer.shift_down",
            "model.layers.{i}.attn.x_proj.0.linear.weight",
            "(mixed r) d -> d (mixed r)",
        ),
        Row("layers.{i}.mixer.shift_up", "model.layers.{i}.attn.x_proj.2.weight", "d (mixed r) -> mixed r d"),
        Row("layers.{i}.mixer.decay_base", "model.layers.{i}.attn.w_proj.linear.lora.2.bias"),
        Row("layers.{i}.mixer.decay_down", "model.layers.{i}.attn.w_proj.linear.lora.0.weight", "n d -> d n"),
        Row("layers.{i}.mixer.decay_up", "model.layers.{i}.attn.w_proj.linear.lora.2.weight", "d n -> n d"),
        Row("layers.{i}.mixer.bonus", "model.layers.{i}.attn.bonus"),
        Row("layers.{i}.mixer.receptance.weight", "model.layers.{i}.attn.r_proj.linear.weight"),
        Row("layers.{i}.mixer.key.weight", "model.layers.{i}.attn.k_proj.linear.weight"),
        Row("layers.{i}.mixer.value.weight", "model.layers.{i}.attn.v_proj.linear.weight"),
        Row("layers.{i}.mixer.gate.weight", "model.layers.{i}.attn.g_proj.linear.weight"),
        Row("layers.{i}.mixer.norm_weight", "model.layers.{i}.attn.g_norm.weight"),
        Row("layers.{i}.mixer.norm_bias", "model.layers.{i}.attn.g_norm.bias"),
        Row("layers.{i}.mixer.out_proj.weight", "model.layers.{i}.attn.o_proj.weight"),
        Row("layers.{i}.ffn.key_mix", "model.layers.{i}.ffn.key.mu"),
        Row("layers.{i}.ffn.receptance_mix", "model.layers.{i}.ffn.receptance.mu"),
        Row("layers.{i}.ffn.key.weight", "model.layers.{i}.ffn.key.linear.weight"),
        Row("layers.{i}.ffn.receptance.weight", "model.layers.{i}.ffn.receptance.linear.weight"),
        Row("layers.{i}.ffn.value.weight", "model.layers.{i}.ffn.value.weight"),
    ),
    defaults={
        "num_heads": 4, "expand_k": 0.5, "expand_v": 1.0, "hidden_ratio": 3.5, "intermediate_size": None,
        "proj_low_rank_dim": 32, "gate_low_rank_dim": 64, "norm_first": True, "norm_eps": 1e-5,
        "tie_word_embeddings": False, "hidden_act": "sqrelu", "norm_bias": True,
    },
    fixed={
        "hidden_act": ("sqrelu",), "norm_bias": (True,), "attn": (None,),
        "expand_k": (1, 1.0), "expand_v": (1, 1.0),  # keys and values of the model's width
    },
    fields=_fields,
    config=_config,
    tied=TIED,
    sizes=lambda spec: {"mixed": 5},
    picks={"mixed": (1, 2, 3, 0, 4)},  # theirs: receptance, decay, key, value, gate; ours: decay, key, value, ...
)  # fmt: skip
