"""transformers' Kimi Linear (model_type "kimi_linear"): KDA, attention through a latent without positions, experts."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import mixer_of
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.kda import KdaMixer
from ssm.specs.model import ModelSpec

LAYERS = {"kda": "linear_attention", "attention": "full_attention"}
LATENT_EPS = 1e-6  # of the norm of the latent, whatever rms_norm_eps says


def _types(config: Config) -> list[str]:
    """The kind of every layer: as transformers lists them, or in Moonshot's own way, whose numbers start at 1."""
    layers, own = config["num_hidden_layers"], config["linear_attn_config"] or {}
    full = [i - 1 for i in own["full_attn_layers"]] if "full_attn_layers" in own else range(4, layers, 4)
    types = config["layer_types"] or ["full_attention" if i in full else "linear_attention" for i in range(layers)]
    if len(types) != layers or not set(types) <= set(LAYERS.values()) or "linear_attention" not in types:
        raise ValueError(f"layer_types is {types}, expected {layers} of {' and '.join(LAYERS.values())}")
    return types


def _fields(config: Config) -> tuple[Fields, int]:
    layers, eps, own = config["num_hidden_layers"], config["rms_norm_eps"], config["linear_attn_config"] or {}
    heads, size = own.get("num_heads", config["linear_num_heads"]), own.get("head_dim", config["linear_head_dim"])
    grouped = config["num_key_value_heads"]
    if grouped not in (None, config["num_attention_heads"]):
        raise ValueError(f"num_key_value_heads is {grouped}, and every head has keys of its own")
    kda = {
        "kind": "kda",
        "n_heads": heads,
        "key_dim": size,
        "value_dim": size,
        "gate_rank": size,
        "gate_bias": False,
        "d_conv": own.get("short_conv_kernel_size", config["linear_conv_kernel_dim"]),
        "norm_eps": eps,
    }
    attention = {
        "kind": "attention",
        "n_heads": config["num_attention_heads"],
        "head_dim": config["qk_nope_head_dim"] + config["qk_rope_head_dim"],
        "rotary_pct": 0.0,
        "latent_dim": config["kv_lora_rank"],
        "shared_dim": config["qk_rope_head_dim"],
        "value_dim": config["v_head_dim"],
        "norm_eps": LATENT_EPS,
    }
    dense = {"kind": "gated_mlp", "d_hidden": config["intermediate_size"]}
    experts = {
        "kind": "experts",
        "n_experts": config["num_experts"],
        "top_k": config["num_experts_per_token"],
        "d_hidden": config["moe_intermediate_size"],
        "d_shared": config["num_shared_experts"] * config["moe_intermediate_size"],
        "scores": "sigmoid",
        "normalize": config["moe_renormalize"],
        "scale": config["routed_scaling_factor"],
        "shared_gate": False,
    }
    first = config["first_k_dense_replace"]
    kinds = config["mlp_layer_types"] or ["dense" if i < first else "sparse" for i in range(layers)]
    if len(kinds) != layers or not set(kinds) <= {"dense", "sparse"}:
        raise ValueError(f"mlp_layer_types is {kinds}, expected {layers} of dense and sparse")
    fields = {
        "d_model": config["hidden_size"],
        "n_layers": layers,
        "mixer": kda,
        "mixer_at": {i: attention for i, kind in enumerate(_types(config)) if kind == "full_attention"},
        "ffn": experts if "sparse" in kinds else dense,
        "ffn_at": {i: dense for i, kind in enumerate(kinds) if kind == "dense" and "sparse" in kinds},
        "norm_eps": eps,
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    kda = mixer_of(spec, KdaMixer)
    H, K, _ = kda.state_shape(spec.d_model)
    config = {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "layer_types": [LAYERS[mixer.kind] for mixer in spec.mixers()],
        "mlp_layer_types": ["sparse" if isinstance(ffn, Experts) else "dense" for ffn in spec.ffns()],
        "linear_num_heads": H,
        "linear_head_dim": K,
        "linear_conv_kernel_dim": kda.d_conv,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
        "pad_token_id": None,  # transformers' default is the last row of the published vocabulary
    }
    for mixer in spec.mixers():
        if isinstance(mixer, AttentionMixer):
            config |= {
                "num_attention_heads": mixer.n_heads,
                "num_key_value_heads": mixer.n_heads,
                "kv_lora_rank": mixer.latent_dim,
                "qk_nope_head_dim": mixer.key_dim(spec.d_model) - mixer.shared_dim,
                "qk_rope_head_dim": mixer.shared_dim,
                "v_head_dim": mixer.read_dim(spec.d_model),
            }
    for ffn in spec.ffns():
        if isinstance(ffn, Experts):
            config |= {
                "num_experts": ffn.n_experts,
                "num_experts_per_token": ffn.top_k,
                "moe_intermediate_size": ffn.d_hidden,
                "num_shared_experts": ffn.d_shared // ffn.d_hidden,
                "moe_renormalize": ffn.normalize,
                "routed_scaling_factor": ffn.scale,
            }
        elif isinstance(ffn, GatedMlp):
            config["intermediate_size"] = ffn.d_hidden
    return config


def _sizes(spec: ModelSpec) -> dict[str, int]:
    kda = mixer_of(spec, KdaMixer)
    H, K, V = kda.state_shape(spec.d_model)
    sizes = {"one": 1, "keys": H * K, "values": H * V, "heads": H, "rank": kda.rank(spec.d_model)}
    for mixer in spec.mixers():
        if isinstance(mixer, AttentionMixer):
            sizes |= {
                "queries": mixer.n_heads * mixer.key_dim(spec.d_model),
                "cached": mixer.memory_numbers(spec.d_model),
            }
    for ffn in spec.ffns():
        if isinstance(ffn, GatedMlp):
            sizes["hidden"] = ffn.d_hidden
        elif isinstance(ffn, Experts):
            sizes["shared"] = ffn.d_shared
    return sizes


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
        Row(  # Moonshot's names of a layer without experts, and those that transformers writes
            f"{AT}ffn.up_proj.weight",
            tuple(f"{MLP}{name}_proj.weight|{MOE}{name}_proj.weight" for name in ("gate", "up")),
            parts=("hidden", "hidden"),
        ),
        Row(f"{AT}ffn.down_proj.weight", f"{MLP}down_proj.weight|{MOE}down_proj.weight"),
        Row(
            f"{AT}ffn.shared.up_proj.weight",
            tuple(f"{MOE}shared_experts.{name}_proj.weight" for name in ("gate", "up")),
            parts=("shared", "shared"),
        ),
        Row(f"{AT}ffn.shared.down_proj.weight", f"{MOE}shared_experts.down_proj.weight"),
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
    defaults={
        "layer_types": None, "mlp_layer_types": None, "linear_attn_config": None, "linear_num_heads": 32,
        "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "num_attention_heads": 32, "num_key_value_heads": None,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "first_k_dense_replace": 1, "intermediate_size": 9216, "num_experts": 256, "num_experts_per_token": 8,
        "num_shared_experts": 1, "moe_intermediate_size": 1024, "moe_renormalize": True, "routed_scaling_factor": 2.446,
        "num_expert_group": 1, "topk_group": 1, "moe_layer_freq": 1, "moe_router_activation_func": "sigmoid",
        "mla_use_nope": True, "attention_bias": False, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    fixed={
        "hidden_act": ("silu",), "attention_bias": (False,), "q_lora_rank": (None,), "num_expert_group": (1,),
        "topk_group": (1,), "moe_layer_freq": (1,), "moe_router_activation_func": ("sigmoid",), "mla_use_nope": (True,),
        "tie_word_embeddings": (False,),  # transformers' model ties nothing, whatever config.json says
    },
    fields=_fields,
    config=_config,
    tied=("model.embed_tokens.weight", "lm_head.weight"),
    sizes=_sizes,
)  # fmt: skip
