"""transformers' RecurrentGemma (model_type "recurrent_gemma"): Griffin."""

from __future__ import annotations

import math

import torch

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.parts import attention_sizes, ffn_sizes, gated_mlp, rotary
from ssm.specs.model import ModelSpec


def _width(width: int, config: Config) -> Fields:
    scale = torch.tensor(math.sqrt(width), dtype=torch.bfloat16)  # transformers rounds it to bfloat16
    return {"d_model": width, "embedding_scale": float(scale)}


def _layers(types: list[str], config: Config) -> dict[int, str]:
    layers = config["num_hidden_layers"]
    kinds = (list(types) * layers)[:layers]
    unknown = sorted(set(kinds) - {"recurrent", "attention"})
    if unknown:
        raise ValueError(f"block_types has {', '.join(unknown)}; ssm supports only recurrent and attention")
    return {i: "attention" for i, kind in enumerate(kinds) if kind == "attention"}


def _block_types(spec: ModelSpec, D: int) -> list[str]:
    return ["recurrent" if mixer.kind == "rglru" else "attention" for mixer in spec.mixers()]


def _projections(kind: str) -> tuple[Row, ...]:
    """The rows of the weights or biases (`kind`) of projections that are called alike in the two kinds of layers."""
    at, block = "layers.{i}.mixer.", "model.layers.{i}.temporal_block."
    qkv = tuple(f"{block}{name}_proj.{kind}" for name in "qkv")
    return (
        Row(f"{at}gate_proj.{kind}", f"{block}linear_y.{kind}", mixer="rglru"),
        Row(f"{at}in_proj.{kind}", f"{block}linear_x.{kind}", mixer="rglru"),
        Row(f"{at}out_proj.{kind}", f"{block}linear_out.{kind}", mixer="rglru"),
        Row(f"{at}in_proj.{kind}", qkv, parts=("queries", "keys", "keys"), mixer="attention"),
        Row(f"{at}out_proj.{kind}", f"{block}o_proj.{kind}", mixer="attention"),
        *gated_mlp("model.layers.{i}.mlp_block.", kind=kind),
    )


RECURRENT_GEMMA = Format(
    key="recurrent_gemma",
    title="transformers' RecurrentGemma",
    model_type="recurrent_gemma",
    architecture="RecurrentGemmaForCausalLM",
    ours={
        "mixer": {"kind": "rglru", "unscaled_start": True},
        "attention": {"kind": "attention", "out_bias": True},
        "ffn": {"kind": "gated_mlp", "activation": "gelu_tanh", "bias": True},
        "norm": "rms_from_one",
    },
    keys=(
        Key("hidden_size", "", read=_width, write=lambda spec, D: D),
        Key("num_hidden_layers", "n_layers"),
        Key("block_types", "mixer_at", ["recurrent", "recurrent", "attention"], read=_layers, write=_block_types),
        Key("num_attention_heads", ("mixer.blocks", "attention.n_heads")),
        Key("lru_width", "mixer.width", None, read=lambda width, config: width or config["hidden_size"]),
        Key("conv1d_width", "mixer.d_conv", 4),
        Key(
            "num_key_value_heads",
            "attention.n_kv_heads",
            None,
            read=lambda groups, config: groups or config["num_attention_heads"],
        ),
        rotary("partial_rotary_factor", "attention.rotary_pct", 0.5),
        rotary("rope_theta", "attention.rotary_base", 10_000.0),
        Key("attention_window_size", "attention.window", 2048, also=("sliding_window",)),
        Key("attention_bias", "attention.bias", False),
        Key(
            "intermediate_size",
            "ffn.d_hidden",
            read=lambda both, config: both // 2,
            write=lambda ffn, D: 2 * ffn.d_hidden,
        ),
        Key("hidden_activation", only=("gelu_pytorch_tanh",)),
        Key("rms_norm_eps", "norm_eps", 1e-6),
        Key("logits_soft_cap", "logit_cap", 30.0),
        Key("tie_word_embeddings", "tie_embeddings", True),
    ),
    rows=(
        Row("embedding.weight", "model.embed_tokens.weight"),
        Row("layers.{i}.norm.weight", "model.layers.{i}.temporal_pre_norm.weight"),
        Row("layers.{i}.ffn_norm.weight", "model.layers.{i}.channel_pre_norm.weight"),
        *_projections("weight"),
        *_projections("bias"),
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
    sizes=lambda spec: attention_sizes(spec) | ffn_sizes(spec),
)
register(RECURRENT_GEMMA)
