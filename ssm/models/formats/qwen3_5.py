"""transformers' Qwen3.5, its text model without experts (model_type "qwen3_5_text"): Gated DeltaNet and attention."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import ffn_of, mixer_of, rotary
from ssm.specs.ffn import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.model import ModelSpec

LAYERS = {"gated_deltanet": "linear_attention", "attention": "full_attention"}


def _fields(config: Config) -> tuple[Fields, int]:
    layers, eps = config["num_hidden_layers"], config["rms_norm_eps"]
    types = config["layer_types"] or [
        "full_attention" if (i + 1) % config["full_attention_interval"] == 0 else "linear_attention"
        for i in range(layers)
    ]
    if len(types) != layers or not set(types) <= set(LAYERS.values()) or "linear_attention" not in types:
        raise ValueError(f"layer_types is {types}, expected {layers} of {' and '.join(LAYERS.values())}")
    base, share = rotary(config, base="rope_theta", share="partial_rotary_factor")
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    delta = {
        "kind": "gated_deltanet",
        "n_heads": values,
        "n_key_heads": keys if keys != values else None,
        "key_dim": config["linear_key_head_dim"],
        "value_dim": config["linear_value_head_dim"],
        "d_conv": config["linear_conv_kernel_dim"],
        "norm_eps": eps,
    }
    attention = {
        "kind": "attention",
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "rotary_pct": share,
        "rotary_base": base,
        "bias": config["attention_bias"],
        "qk_norm": True,
        "gate": True,
        "norm_eps": eps,
    }
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": layers,
        "mixer": delta,
        "mixer_at": {i: attention for i, kind in enumerate(types) if kind == "full_attention"},
        "ffn": {"kind": "gated_mlp", "d_hidden": config["intermediate_size"]},
        "norm": "rms_from_one",
        "norm_eps": eps,
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    delta, ffn = mixer_of(spec, GatedDeltaNetMixer), ffn_of(spec, GatedMlp)
    H, K, V = delta.state_shape(spec.d_model)
    config = {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "layer_types": [LAYERS[mixer.kind] for mixer in spec.mixers()],
        "linear_num_value_heads": H,
        "linear_num_key_heads": delta.key_heads,
        "linear_key_head_dim": K,
        "linear_value_head_dim": V,
        "linear_conv_kernel_dim": delta.d_conv,
        "intermediate_size": ffn.d_hidden,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }
    attention = _attention(spec)
    if attention is None:
        return config
    return config | {
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.heads(spec.d_model),
        "head_dim": attention.state_shape(spec.d_model)[-1],
        "attention_bias": attention.bias,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": attention.rotary_base,
            "partial_rotary_factor": attention.rotary_pct,
        },
    }


def _attention(spec: ModelSpec) -> AttentionMixer | None:
    return next((mixer for mixer in spec.mixers() if isinstance(mixer, AttentionMixer)), None)


def _sizes(spec: ModelSpec) -> dict[str, int]:
    delta, attention = mixer_of(spec, GatedDeltaNetMixer), _attention(spec)
    H, _, V = delta.state_shape(spec.d_model)
    sizes = {"qkv": delta.convolved(spec.d_model), "heads": H, "z": H * V, "hidden": ffn_of(spec, GatedMlp).d_hidden}
    if attention is None:
        return sizes
    groups, _, _, head = attention.state_shape(spec.d_model)
    return sizes | {"queries": 2 * attention.n_heads * head, "keys": groups * head}


AT, DELTA, FULL = "layers.{i}.", "model.layers.{i}.linear_attn.", "model.layers.{i}.self_attn."
QWEN3_5 = Format(
    key="qwen3_5",
    title="transformers' Qwen3.5 text model",
    model_type="qwen3_5_text",
    architecture="Qwen3_5ForCausalLM",
    rows=(
        Row("embedding.weight", "model.embed_tokens.weight"),
        Row(f"{AT}norm.weight", "model.layers.{i}.input_layernorm.weight"),
        Row(f"{AT}ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
        Row(
            f"{AT}mixer.in_proj.weight",
            tuple(f"{DELTA}in_proj_{name}.weight" for name in ("qkv", "b", "a", "z")),
            parts=("qkv", "heads", "heads", "z"),
            mixer="gated_deltanet",
        ),
        Row(f"{AT}mixer.conv_weight", f"{DELTA}conv1d.weight", "c 1 k -> c k", mixer="gated_deltanet"),
        Row(f"{AT}mixer.dt_bias", f"{DELTA}dt_bias"),
        Row(f"{AT}mixer.A_log", f"{DELTA}A_log"),
        Row(f"{AT}mixer.norm_weight", f"{DELTA}norm.weight"),
        Row(f"{AT}mixer.out_proj.weight", f"{DELTA}out_proj.weight", mixer="gated_deltanet"),
        *(
            Row(
                f"{AT}mixer.in_proj.{kind}",  # of a head the queries, then the gate
                tuple(f"{FULL}{name}_proj.{kind}" for name in "qkv"),
                parts=("queries", "keys", "keys"),
                mixer="attention",
            )
            for kind in ("weight", "bias")
        ),
        *(Row(f"{AT}mixer.out_proj.{kind}", f"{FULL}o_proj.{kind}", mixer="attention") for kind in ("weight", "bias")),
        *(Row(f"{AT}mixer.{name}_norm_weight", f"{FULL}{name}_norm.weight") for name in "qk"),
        Row(
            f"{AT}ffn.up_proj.weight",
            tuple(f"model.layers.{{i}}.mlp.{name}_proj.weight" for name in ("gate", "up")),
            parts=("hidden", "hidden"),
        ),
        Row(f"{AT}ffn.down_proj.weight", "model.layers.{i}.mlp.down_proj.weight"),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    ),
    defaults={
        "layer_types": None, "full_attention_interval": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 256, "attention_bias": False, "rope_theta": 10_000.0, "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    fixed={"hidden_act": ("silu",)},
    fields=_fields,
    config=_config,
    tied=("model.embed_tokens.weight", "lm_head.weight"),
    sizes=_sizes,
    ignored=r"mtp\..*",  # a head that foretells several tokens
)  # fmt: skip
