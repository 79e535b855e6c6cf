"""transformers' RecurrentGemma (model_type "recurrent_gemma"): Griffin."""

from __future__ import annotations

import math
from typing import Any

import torch

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, rotary
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.rglru import RglruMixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    width, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    kinds = (list(config["block_types"]) * layers)[:layers]
    unknown = sorted(set(kinds) - {"recurrent", "attention"})
    if unknown:
        raise ValueError(f"block_types has {', '.join(unknown)}; known are recurrent and attention")
    base, share = rotary(config, base="rope_theta", share="partial_rotary_factor")
    recurrent = {
        "kind": "rglru",
        "width": config["lru_width"] or width,
        "blocks": heads,
        "d_conv": config["conv1d_width"],
        "unscaled_start": True,
    }
    attention = {
        "kind": "attention",
        "n_heads": heads,
        "n_kv_heads": config["num_key_value_heads"] or heads,
        "rotary_pct": share,
        "rotary_base": base,
        "window": config["attention_window_size"],
        "bias": config["attention_bias"],
        "out_bias": True,
    }
    hidden = config["intermediate_size"] // 2
    fields = {
        "d_model": width,
        "n_layers": layers,
        "mixer": recurrent,
        "mixer_at": {i: attention for i, kind in enumerate(kinds) if kind == "attention"},
        "ffn": {"kind": "gated_mlp", "d_hidden": hidden, "activation": "gelu_tanh", "bias": True},
        "norm": "rms_from_one",
        "norm_eps": config["rms_norm_eps"],
        "embedding_scale": _scale(width),
        "logit_cap": config["logits_soft_cap"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _scale(width: int) -> float:
    """sqrt(D), which it keeps in bfloat16."""
    return float(torch.tensor(math.sqrt(width), dtype=torch.bfloat16))


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixers = spec.mixers()
    recurrent = next((mixer for mixer in mixers if isinstance(mixer, RglruMixer)), None)
    attention = next((mixer for mixer in mixers if isinstance(mixer, AttentionMixer)), None)
    if recurrent is None:
        raise ValueError("it has an RG-LRU")
    config = {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": recurrent.blocks,
        "lru_width": recurrent.channels(spec.d_model),
        "conv1d_width": recurrent.d_conv,
        "intermediate_size": 2 * ffn_of(spec, GatedMlp).d_hidden,
        "block_types": ["recurrent" if mixer.kind == "rglru" else "attention" for mixer in mixers],
        "rms_norm_eps": spec.norm_eps,
        "logits_soft_cap": spec.logit_cap,
        "tie_word_embeddings": spec.tie_embeddings,
    }
    if attention is not None:
        config |= {
            "num_key_value_heads": attention.heads(spec.d_model),
            "attention_window_size": attention.window,
            "partial_rotary_factor": attention.rotary_pct,
            "rope_theta": attention.rotary_base,
            "attention_bias": attention.bias,
        }
    return config


def _sizes(spec: ModelSpec) -> dict[str, int]:
    for mixer in spec.mixers():
        if isinstance(mixer, AttentionMixer):
            groups, _, _, head = mixer.state_shape(spec.d_model)
            return {"queries": mixer.n_heads * head, "keys": groups * head, "hidden": ffn_of(spec, GatedMlp).d_hidden}
    return {"hidden": ffn_of(spec, GatedMlp).d_hidden}


def _projected(kind: str) -> tuple[Row, ...]:
    """The rows of projections, which are of one kind ("weight" or "bias") each."""
    at, block = "layers.{i}.mixer.", "model.layers.{i}.temporal_block."
    qkv = tuple(f"{block}{name}_proj.{kind}" for name in "qkv")
    gated = tuple(f"model.layers.{{i}}.mlp_block.{name}_proj.{kind}" for name in ("gate", "up"))
    return (
        Row(f"{at}gate_proj.{kind}", f"{block}linear_y.{kind}", mixer="rglru"),
        Row(f"{at}in_proj.{kind}", f"{block}linear_x.{kind}", mixer="rglru"),
        Row(f"{at}out_proj.{kind}", f"{block}linear_out.{kind}", mixer="rglru"),
        Row(f"{at}in_proj.{kind}", qkv, parts=("queries", "keys", "keys"), mixer="attention"),
        Row(f"{at}out_proj.{kind}", f"{block}o_proj.{kind}", mixer="attention"),
        Row(f"layers.{{i}}.ffn.up_proj.{kind}", gated, parts=("hidden", "hidden")),
        Row(f"layers.{{i}}.ffn.down_proj.{kind}", f"model.layers.{{i}}.mlp_block.down_proj.{kind}"),
    )


RECURRENT_GEMMA = Format(
    key="recurrent_gemma",
    title="transformers' RecurrentGemma",
    model_type="recurrent_gemma",
    architecture="RecurrentGemmaForCausalLM",
    rows=(
        Row("embedding.weight", "model.embed_tokens.weight"),
        Row("layers.{i}.norm.weight", "model.layers.{i}.temporal_pre_norm.weight"),
        Row("layers.{i}.ffn_norm.weight", "model.layers.{i}.channel_pre_norm.weight"),
        *_projected("weight"),
        *_projected("bias"),
        Row("layers.{i}.mixer.conv_weight", "model.layers.{i}.temporal_block.conv_1d.weight", "c 1 k -> c k"),
        Row("layers.{i}.mixer.conv_bias", "model.layers.{i}.temporal_block.conv_1d.bias"),
        Row("layers.{i}.mixer.Lambda", "model.layers.{i}.temporal_block.rg_lru.recurrent_param"),
        Row("layers.{i}.mixer.recurrence_weight", "model.layers.{i}.temporal_block.rg_lru.recurrent_gate_weight"),
        Row("layers.{i}.mixer.recurrence_bias", "model.layers.{i}.temporal_block.rg_lru.recurrent_gate_bias"),
        Row("layers.{i}.mixer.input_weight", "model.layers.{i}.temporal_block.rg_lru.input_gate_weight"),
        Row("layers.{i}.mixer.input_bias", "model.layers.{i}.temporal_block.rg_lru.input_gate_bias"),
        Row("norm.weight", "model.final_norm.weight"),
        Row("head.weight", "lm_head.weight"),
    ),
    defaults={
        "lru_width": None, "conv1d_width": 4, "num_key_value_heads": None, "partial_rotary_factor": 0.5,
        "rope_theta": 10_000.0, "attention_window_size": 2048, "attention_bias": False, "rms_norm_eps": 1e-6,
        "logits_soft_cap": 30.0, "tie_word_embeddings": True, "block_types": ["recurrent", "recurrent", "attention"],
        "hidden_activation": "gelu_pytorch_tanh",
    },
    fixed={"hidden_activation": ("gelu_pytorch_tanh",)},
    fields=_fields,
    config=_config,
    tied=("model.embed_tokens.weight", "lm_head.weight"),
    sizes=_sizes,
)  # fmt: skip
