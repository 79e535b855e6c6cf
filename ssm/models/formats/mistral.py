"""transformers' Mistral (model_type "mistral")."""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Key
from ssm.models.formats.parts import SIZES, attention_sizes, ffn_sizes, gated_mlp, rotary

AT, THERE = "layers.{i}.", "model.layers.{i}."
MISTRAL = Format(
    key="mistral",
    title="transformers' Mistral",
    model_type="mistral",
    architecture="MistralForCausalLM",
    ours={"mixer": {"kind": "attention"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *SIZES,
        Key("num_attention_heads", "mixer.n_heads"),
        Key("num_key_value_heads", "mixer.n_kv_heads", 8),
        Key("head_dim", "mixer.head_dim", None),
        rotary("rope_theta", "mixer.rotary_base", 10_000.0),
        Key("sliding_window", "mixer.window", 4096),
        Key("intermediate_size", "ffn.d_hidden"),
        Key("hidden_act", only=("silu",)),
        Key("rms_norm_eps", "norm_eps", 1e-6),
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
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
        *gated_mlp(f"{THERE}mlp."),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    ),
    sizes=lambda spec: attention_sizes(spec) | ffn_sizes(spec),
)
register(MISTRAL)
