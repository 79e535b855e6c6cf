"""transformers' GPT-NeoX (model_type "gpt_neox"): Pythia and its kin."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of, rotary
from ssm.specs.ffn.mlp import Mlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.model import ModelSpec

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
               "relu": "relu"}  # fmt: skip


def _fields(config: Config) -> tuple[Fields, int]:
    if config["hidden_act"] not in ACTIVATIONS:
        raise ValueError(f"hidden_act is {config['hidden_act']!r}; known are {', '.join(ACTIVATIONS)}")
    base, share = rotary(config, base="rotary_emb_base", share="rotary_pct")
    mixer = {
        "kind": "attention",
        "n_heads": config["num_attention_heads"],
        "rotary_pct": share,
        "rotary_base": base,
        "bias": config["attention_bias"],
    }
    activation = ACTIVATIONS[config["hidden_act"]]
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "mixer": mixer,
        "ffn": {"kind": "mlp", "d_hidden": config["intermediate_size"], "activation": activation, "bias": True},
        "parallel_residual": config["use_parallel_residual"],
        "norm": "layer",
        "norm_eps": config["layer_norm_eps"],
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer, ffn = mixer_of(spec, AttentionMixer), ffn_of(spec, Mlp)
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": mixer.n_heads,
        "intermediate_size": ffn.d_hidden,
        "hidden_act": {ours: theirs for theirs, ours in ACTIVATIONS.items()}[ffn.activation],
        "rotary_pct": mixer.rotary_pct,
        "rotary_emb_base": mixer.rotary_base,
        "attention_bias": mixer.bias,
        "use_parallel_residual": spec.parallel_residual,
        "layer_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }


def _sizes(spec: ModelSpec) -> dict[str, int]:
    mixer = mixer_of(spec, AttentionMixer)
    return {"h": mixer.n_heads, "qkv": 3}


GPT_NEOX = Format(
    key="gpt_neox",
    title="transformers' GPT-NeoX",
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    rows=(
        Row("embedding.weight", "gpt_neox.embed_in.weight"),
        Row("layers.{i}.norm.weight", "gpt_neox.layers.{i}.input_layernorm.weight"),
        Row("layers.{i}.norm.bias", "gpt_neox.layers.{i}.input_layernorm.bias"),
        Row("layers.{i}.ffn_norm.weight", "gpt_neox.layers.{i}.post_attention_layernorm.weight"),
        Row("layers.{i}.ffn_norm.bias", "gpt_neox.layers.{i}.post_attention_layernorm.bias"),
        Row(
            "layers.{i}.mixer.in_proj.weight",
            "gpt_neox.layers.{i}.attention.query_key_value.weight",
            "(h qkv k) d -> (qkv h k) d",
        ),
        Row(
            "layers.{i}.mixer.in_proj.bias",
            "gpt_neox.layers.{i}.attention.query_key_value.bias",
            "(h qkv k) -> (qkv h k)",
        ),
        Row("layers.{i}.mixer.out_proj.weight", "gpt_neox.layers.{i}.attention.dense.weight"),
        Row("layers.{i}.mixer.out_proj.bias", "gpt_neox.layers.{i}.attention.dense.bias"),
        Row("layers.{i}.ffn.up_proj.weight", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.weight"),
        Row("layers.{i}.ffn.up_proj.bias", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.bias"),
        Row("layers.{i}.ffn.down_proj.weight", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.weight"),
        Row("layers.{i}.ffn.down_proj.bias", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.bias"),
        Row("norm.weight", "gpt_neox.final_layer_norm.weight"),
        Row("norm.bias", "gpt_neox.final_layer_norm.bias"),
        Row("head.weight", "embed_out.weight|lm_head.weight"),
    ),
    defaults={
        "hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10_000, "attention_bias": True,
        "use_parallel_residual": True, "layer_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
    fixed={},
    fields=_fields,
    config=_config,
    tied=("gpt_neox.embed_in.weight", "embed_out.weight|lm_head.weight"),
    sizes=_sizes,
    # Buffers of older versions: masks and frequencies.
    ignored=r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
)  # fmt: skip
