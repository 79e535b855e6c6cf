"""What transformers' Qwen3.5 and Qwen3-Next read and write in the same way: Gated DeltaNet, attention, experts."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Row
from ssm.models.formats.parts import mixer_of, rotary
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.model import ModelSpec

LAYERS = {"gated_deltanet": "linear_attention", "attention": "full_attention"}
TIED = ("model.embed_tokens.weight", "lm_head.weight")
IGNORED = r"mtp\..*"  # a head that foretells several tokens
DEFAULTS = {
    "layer_types": None, "full_attention_interval": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 256, "attention_bias": False, "attn_output_gate": True, "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.25, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {
    "num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "norm_topk_prob": True,
}  # fmt: skip
FIXED = {"hidden_act": ("silu",), "attn_output_gate": (True,)}


def fields_of(config: Config, ffn: Fields) -> tuple[Fields, int]:
    """The fields of a spec, but for those of its ffn, which are given; and the size of the vocabulary."""
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
        "norm": "rms_from_one",
        "norm_eps": eps,
        "tie_embeddings": config["tie_word_embeddings"],
    }
    return fields | ffn, config["vocab_size"]


def dense(config: Config) -> Fields:
    """The gated perceptron of layers without experts."""
    return {"kind": "gated_mlp", "d_hidden": config["intermediate_size"]}


def experts(config: Config) -> Fields:
    """The experts of a layer."""
    return {
        "kind": "experts",
        "n_experts": config["num_experts"],
        "top_k": config["num_experts_per_tok"],
        "d_hidden": config["moe_intermediate_size"],
        "d_shared": config["shared_expert_intermediate_size"],
        "normalize": config["norm_topk_prob"],
    }


def config_around(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    """A config.json, but for what it says of ffns."""
    delta, attention = mixer_of(spec, GatedDeltaNetMixer), _attention(spec)
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
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
    }
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


def config_of_experts(ffn: Experts) -> dict[str, Any]:
    """What config.json says of them."""
    return {
        "num_experts": ffn.n_experts,
        "num_experts_per_tok": ffn.top_k,
        "moe_intermediate_size": ffn.d_hidden,
        "shared_expert_intermediate_size": ffn.d_shared,
        "norm_topk_prob": ffn.normalize,
    }


def _attention(spec: ModelSpec) -> AttentionMixer | None:
    return next((mixer for mixer in spec.mixers() if isinstance(mixer, AttentionMixer)), None)


def sizes_of(spec: ModelSpec) -> dict[str, int]:
    """Of the parts that rows name."""
    delta, attention = mixer_of(spec, GatedDeltaNetMixer), _attention(spec)
    H, _, V = delta.state_shape(spec.d_model)
    sizes = {"one": 1, "half": 2, "qkv": delta.convolved(spec.d_model), "heads": H, "z": H * V}
    for ffn in spec.ffns():
        if isinstance(ffn, GatedMlp):
            sizes["hidden"] = ffn.d_hidden
        elif isinstance(ffn, Experts):
            sizes["shared"] = ffn.d_shared
    if attention is None:
        return sizes
    groups, _, _, head = attention.state_shape(spec.d_model)
    return sizes | {"queries": 2 * attention.n_heads * head, "keys": groups * head}


AT, DELTA, FULL = "layers.{i}.", "model.layers.{i}.linear_attn.", "model.layers.{i}.self_attn."
MLP = "model.layers.{i}.mlp."


def _gated_mlp(ours: str, theirs: str, hidden: str) -> tuple[Row, ...]:
    gated = tuple(f"{theirs}{name}_proj.weight" for name in ("gate", "up"))
    return (
        Row(f"{ours}up_proj.weight", gated, parts=(hidden, hidden)),
        Row(f"{ours}down_proj.weight", f"{theirs}down_proj.weight"),
    )


ROWS = (  # all but the projection of Gated DeltaNet
    Row("embedding.weight", "model.embed_tokens.weight"),
    Row(f"{AT}norm.weight", "model.layers.{i}.input_layernorm.weight"),
    Row(f"{AT}ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
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
    *_gated_mlp(f"{AT}ffn.", MLP, "hidden"),
    *_gated_mlp(f"{AT}ffn.shared.", f"{MLP}shared_expert.", "shared"),
    Row(f"{AT}ffn.shared_gate.weight", f"{MLP}shared_expert_gate.weight"),
    Row(f"{AT}ffn.router.weight", f"{MLP}gate.weight"),
    Row(
        f"{AT}ffn.up_proj",
        tuple(f"{MLP}experts.{{e}}.{name}_proj.weight" for name in ("gate", "up")),
        "h d -> 1 h d",
        parts=("one", "one"),
        fused=(f"{MLP}experts.gate_up_proj", "e (half h) d -> (e half) h d"),  # as transformers has them in memory
    ),
    Row(
        f"{AT}ffn.down_proj",
        f"{MLP}experts.{{e}}.down_proj.weight",
        "d h -> 1 d h",
        parts=("one",),
        fused=(f"{MLP}experts.down_proj", "e d h -> e d h"),
    ),
    Row("norm.weight", "model.norm.weight"),
    Row("head.weight", "lm_head.weight"),
)
