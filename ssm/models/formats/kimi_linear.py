"""transformers' Kimi Linear (model_type "kimi_linear"): KDA, latent attention without positions, experts."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.parts import SIZES, ffn_sizes, gated_mlp, layer_types, mixer_of
from ssm.specs.ffn.experts import Experts
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.kda import KdaMixer
from ssm.specs.model import ModelSpec

LATENT_EPS = 1e-6  # epsilon of the norm of the latent; it does not depend on rms_norm_eps


def _attention(config: Config) -> Container[int]:
    """The attention layers, counted from 0: as Moonshot's files list them, from 1, or transformers' default."""
    own = config["linear_attn_config"] or {}
    if "full_attn_layers" in own:
        return [i - 1 for i in own["full_attn_layers"]]
    return range(4, config["num_hidden_layers"], 4)


def _own(name: str) -> Callable[[Any, Config], Any]:
    """`read` of a key that Moonshot's files have inside linear_attn_config."""
    return lambda value, config: (config["linear_attn_config"] or {}).get(name, value)


def _no_groups(groups: int | None, config: Config) -> Fields:
    if groups not in (None, config["num_attention_heads"]):
        raise ValueError(f"num_key_value_heads is {groups}; ssm supports only num_attention_heads here")
    return {}


def _ffns(kinds: list[str] | None, config: Config) -> Fields:
    layers, first = config["num_hidden_layers"], config["first_k_dense_replace"]
    kinds = kinds or ["dense" if i < first else "sparse" for i in range(layers)]
    if len(kinds) != layers or not set(kinds) <= {"dense", "sparse"}:
        raise ValueError(f"mlp_layer_types is {kinds}, expected {layers} of dense and sparse")
    if "sparse" not in kinds:
        return {"ffn": "dense"}
    return {"ffn": "experts", "ffn_at": {i: "dense" for i, kind in enumerate(kinds) if kind == "dense"}}


def _mlp_layer_types(spec: ModelSpec, D: int) -> list[str]:
    return ["sparse" if isinstance(ffn, Experts) else "dense" for ffn in spec.ffns()]


def _sizes(spec: ModelSpec) -> dict[str, int]:
    kda = mixer_of(spec, KdaMixer)
    H, K, V = kda.state_shape(spec.d_model)
    sizes = {"one": 1, "keys": H * K, "values": H * V, "heads": H, "rank": kda.rank(spec.d_model)}
    for mixer in spec.mixers():
        if isinstance(mixer, AttentionMixer):
            sizes |= {
                "queries": mixer.n_heads * mixer.key_dim(spec.d_model),
                "cached": mixer.recurrent_state_numbers(spec.d_model),
            }
    return sizes | ffn_sizes(spec)


AT, SELF = "layers.{i}.", "model.layers.{i}.self_attn."
MOE, MLP = "model.layers.{i}.block_sparse_moe.", "model.layers.{i}.mlp."
PROJECTED = {
    "q_proj": "keys", "k_proj": "keys", "v_proj": "values", "b_proj": "heads", "f_a_proj": "rank", "g_a_proj": "rank",
}  # fmt: skip
KIMI_LINEAR = Format(
    key="kimi_linear",
    title="transformers' Kimi Linear",
    model_type="kimi_linear",
    architecture="KimiLinearForCausalLM",
    ours={
        "mixer": {"kind": "kda", "gate_bias": False},
        "attention": {"kind": "attention", "rotary_pct": 0.0, "norm_eps": LATENT_EPS},
        "dense": {"kind": "gated_mlp"},
        "experts": {"kind": "experts", "scores": "sigmoid", "shared_gate": False},
    },
    keys=(
        *SIZES,
        Key("linear_attn_config", default=None),
        layer_types(attention=_attention),
        Key("linear_num_heads", "mixer.n_heads", 32, read=_own("num_heads")),
        Key("linear_head_dim", ("mixer.key_dim", "mixer.value_dim", "mixer.gate_rank"), 128, read=_own("head_dim")),
        Key("linear_conv_kernel_dim", "mixer.d_conv", 4, read=_own("short_conv_kernel_size")),
        Key("num_attention_heads", "attention.n_heads", 32),
        Key("num_key_value_heads", "attention", None, read=_no_groups, write=lambda mixer, D: mixer.n_heads),
        Key("kv_lora_rank", "attention.latent_dim", 512),
        Key("q_lora_rank", only=(None,)),
        Key(
            "qk_nope_head_dim",
            "attention.head_dim",
            128,
            read=lambda size, config: size + config["qk_rope_head_dim"],
            write=lambda mixer, D: mixer.key_dim(D) - mixer.shared_dim,
        ),
        Key("qk_rope_head_dim", "attention.shared_dim", 64),
        Key("v_head_dim", "attention.value_dim", 128, write=lambda mixer, D: mixer.read_dim(D)),
        Key("attention_bias", only=(False,)),
        Key("mla_use_nope", only=(True,)),
        Key("first_k_dense_replace", default=1),
        Key("moe_layer_freq", only=(1,)),
        Key("mlp_layer_types", "", None, read=_ffns, write=_mlp_layer_types),
        Key("intermediate_size", "dense.d_hidden", 9216),
        Key("num_experts", "experts.n_experts", 256, also=("num_local_experts",)),
        Key("num_experts_per_token", "experts.top_k", 8, also=("num_experts_per_tok",)),
        Key("moe_intermediate_size", "experts.d_hidden", 1024),
        Key(
            "num_shared_experts",
            "experts.d_shared",
            1,
            read=lambda number, config: number * config["moe_intermediate_size"],
            write=lambda ffn, D: ffn.d_shared // ffn.d_hidden,
            also=("n_shared_experts",),
        ),
        Key("moe_renormalize", "experts.normalize", True, also=("norm_topk_prob",)),
        Key("routed_scaling_factor", "experts.scale", 2.446),
        Key("moe_router_activation_func", only=("sigmoid",)),
        Key("num_expert_group", only=(1,), also=("n_group",)),
        Key("topk_group", only=(1,)),
        Key("rms_norm_eps", ("norm_eps", "mixer.norm_eps"), 1e-5),
        Key("hidden_act", only=("silu",)),
        # transformers' model ignores True.
        Key("tie_word_embeddings", "tie_embeddings", only=(False,)),
        # transformers' default is the last row of the published vocabulary.
        Key("pad_token_id", default=None, write=lambda spec, D: None),
    ),
    rows=(
        Row("embedding.weight", "model.embed_tokens.weight"),
        Row(f"{AT}norm.weight", "model.layers.{i}.input_layernorm.weight"),
        Row(f"{AT}ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
        Row(
            f"{AT}mixer.in_proj.weight",
            tuple(f"{SELF}{name}.weight" for name in PROJECTED),
            parts=tuple(PROJECTED.values()),
            mixer="kda",
        ),
        Row(
            f"{AT}mixer.conv_weight",
            tuple(f"{SELF}{name}_conv1d.weight" for name in "qkv"),
            "c 1 k -> c k",
            ("keys", "keys", "values"),
        ),
        Row(f"{AT}mixer.A_log", f"{SELF}A_log", "1 1 h 1 -> h"),
        Row(f"{AT}mixer.dt_bias", f"{SELF}dt_bias"),
        Row(f"{AT}mixer.decay_proj.weight", f"{SELF}f_b_proj.weight"),
        Row(f"{AT}mixer.gate_proj.weight", f"{SELF}g_b_proj.weight"),
        Row(f"{AT}mixer.norm_weight", f"{SELF}o_norm.weight"),
        Row(
            f"{AT}mixer.in_proj.weight",
            (f"{SELF}q_proj.weight", f"{SELF}kv_a_proj_with_mqa.weight"),
            parts=("queries", "cached"),
            mixer="attention",
        ),
        Row(f"{AT}mixer.latent_norm_weight", f"{SELF}kv_a_layernorm.weight"),
        Row(f"{AT}mixer.latent_proj.weight", f"{SELF}kv_b_proj.weight"),
        Row(f"{AT}mixer.out_proj.weight", f"{SELF}o_proj.weight"),
        *gated_mlp(f"{MLP}|{MOE}"),  # a layer without experts: Moonshot's names, and transformers' names
        *gated_mlp(f"{MOE}shared_experts.", f"{AT}ffn.shared.", "shared"),
        Row(f"{AT}ffn.router.weight", f"{MOE}gate.weight"),
        Row(f"{AT}ffn.choice_bias", f"{MOE}gate.e_score_correction_bias"),
        Row(
            f"{AT}ffn.up_proj",
            tuple(f"{MOE}experts.{{e}}.{name}.weight" for name in ("w1", "w3")),
            "h d -> 1 h d",
            parts=("one", "one"),
        ),
        Row(f"{AT}ffn.down_proj", f"{MOE}experts.{{e}}.w2.weight", "d h -> 1 d h", parts=("one",)),
        Row("norm.weight", "model.norm.weight"),
        Row("head.weight", "lm_head.weight"),
    ),
    sizes=_sizes,
)
register(KIMI_LINEAR)
