"""transformers' Mistral (model_type "mistral")."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of, rotary
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    base, _ = rotary(config, base="rope_theta", share="partial_rotary_factor")
    mixer = {
        "kind": "attention",
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "rotary_base": base,
        "window": config["sliding_window"],
    }
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "mixer": mixer,
        "ffn": {"kind": "gated_mlp", "d_hidden": config["intermediate_size"]},
        "norm_eps": config["rms_norm_eps"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer, ffn = mixer_of(spec, AttentionMixer), ffn_of(spec, GatedMlp)
    if mixer.rotary_pct != 1:
        raise ValueError(f"a share of {mixer.rotary_pct:g} of its heads is rotated, and Mistral rotates them whole")
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": mixer.n_heads,
        "num_key_value_heads": mixer.heads(spec.d_model),
        "head_dim": mixer.state_shape(spec.d_model)[-1],
        "intermediate_size": ffn.d_hidden,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": mixer.rotary_base,
        "sliding_window": mixer.window,
        "tie_word_embeddings": spec.tie_embeddings,
    }


def _sizes(spec: ModelSpec) -> dict[str, int]:
    mixer = mixer_of(spec, AttentionMixer)
    groups, _, _, head = mixer.state_shape(spec.d_model)
    return {"queries": mixer.n_heads * head, "keys": groups * head, "hidden": ffn_of(spec, GatedMlp).d_hidden}


AT, THERE = "layers.{i}.", "model.layers.{i}."
MISTRAL = Format(
    key="mistral",
    title="transformers' Mistral",
    model_type="mistral",
    architecture="MistralForCausalLM",
    rows=(
        Row("embedding.weight", "model.embed_tokens.weight"),
        Row(f"{AT}norm.weight", f"{THERE}input_layernorm.weight"),
        Row(f"{AT}ffn_norm.weight", f"{THERE}post_attention_layernorm.weight"),
        Row(
            f"{AT}mixer.in_proj.weight",
            tuple(f"{THERE}self_attn.{name}_proj.weight" for name in "qkv"),
            parts=("queries", "keys", "keys"),
        ),
        Row(f"{AT}mixer.out_proj.weight", f"{THERE}self_attn.o_proj.weight"),
        Row(
            f"{AT}ffn.up_proj.weight",
            tuple(f"{THERE}mlp.{name}_proj.weight" for name in ("gate", "up")),
            parts=("hidden", "hidden"),
        ),
        Row(f"{AT}ffn.down_proj.weight", f"{THERE}mlp.down_proj.weight"),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    ),
    defaults={
        "num_key_value_heads": 8, "head_dim": None, "partial_rotary_factor": 1.0, "rope_theta": 10_000.0,
        "sliding_window": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    fixed={"hidden_act": ("silu",)},
    fields=_fields,
    config=_config,
    tied=("model.embed_tokens.weight", "lm_head.weight"),
    sizes=_sizes,
)  # fmt: skip
