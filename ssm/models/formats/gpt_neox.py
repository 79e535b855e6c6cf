"""transformers' GPT-NeoX (model_type "gpt_neox"), for example Pythia."""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Key
from ssm.models.formats.parts import SIZES, affine, mixer_of, rotary
from ssm.specs.mixers.attention import AttentionMixer

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

AT, THERE = "layers.{i}.", "gpt_neox.layers.{i}."
GPT_NEOX = Format(
    key="gpt_neox",
    title="transformers' GPT-NeoX",
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    ours={"mixer": {"kind": "attention"}, "ffn": {"kind": "mlp", "bias": True}, "norm": "layer"},
    keys=(
        *SIZES,
        Key("num_attention_heads", "mixer.n_heads"),
        rotary("rotary_pct", "mixer.rotary_pct", 0.25, newer="partial_rotary_factor"),
        rotary("rotary_emb_base", "mixer.rotary_base", 10_000, newer="rope_theta"),
        Key("attention_bias", "mixer.bias", True),
        Key("intermediate_size", "ffn.d_hidden"),
        Key("hidden_act", "ffn.activation", only=ACTIVATIONS),
        Key("use_parallel_residual", "parallel_residual", True),
        Key("layer_norm_eps", "norm_eps", 1e-5),
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
    rows=(
        Row("embedding.weight", "gpt_neox.embed_in.weight"),
        *affine(f"{AT}norm", f"{THERE}input_layernorm"),
        *affine(f"{AT}ffn_norm", f"{THERE}post_attention_layernorm"),
        Row(f"{AT}mixer.in_proj.weight", f"{THERE}attention.query_key_value.weight", "(h qkv k) d -> (qkv h k) d"),
        Row(f"{AT}mixer.in_proj.bias", f"{THERE}attention.query_key_value.bias", "(h qkv k) -> (qkv h k)"),
        *affine(f"{AT}mixer.out_proj", f"{THERE}attention.dense"),
        *affine(f"{AT}ffn.up_proj", f"{THERE}mlp.dense_h_to_4h"),
        *affine(f"{AT}ffn.down_proj", f"{THERE}mlp.dense_4h_to_h"),
        *affine("norm", "gpt_neox.final_layer_norm"),
        Row("head.weight", "embed_out.weight|lm_head.weight"),
    ),
    sizes=lambda spec: {"h": mixer_of(spec, AttentionMixer).n_heads, "qkv": 3},
    # Older versions of transformers stored masks and frequencies.
    ignored=r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
)
register(GPT_NEOX)
