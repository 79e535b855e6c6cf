"""transformers' Qwen3.5 text models ("qwen3_5_text", "qwen3_5_moe_text"), and the parts that Qwen3-Next shares."""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Key
from ssm.models.formats.parts import SIZES, attention_sizes, ffn_sizes, gated_mlp, layer_types, mixer_of, rotary
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.model import ModelSpec

IGNORED = r"mtp\..*"  # a head that predicts several tokens
OURS = {
    "mixer": {"kind": "gated_deltanet"},
    "attention": {"kind": "attention", "qk_norm": True, "gate": True},
    "norm": "rms_from_one",
}


def _intervals(config: Config) -> range:
    step = config["full_attention_interval"]
    return range(step - 1, config["num_hidden_layers"], step)


def _key_heads(groups: int, config: Config) -> int | None:
    return groups if groups != config["linear_num_value_heads"] else None


def keys_around(kv_heads: int) -> tuple[Key, ...]:
    """All keys except those of ffns.

    Args:
        kv_heads: default number of heads of keys and values.
    """
    return (
        *SIZES,
        Key("full_attention_interval", default=4),
        layer_types(attention=_intervals),
        Key("linear_num_value_heads", "mixer.n_heads", 32),
        Key("linear_num_key_heads", "mixer.n_key_heads", 16, read=_key_heads),
        Key("linear_key_head_dim", "mixer.key_dim", 128),
        Key("linear_value_head_dim", "mixer.value_dim", 128),
        Key("linear_conv_kernel_dim", "mixer.d_conv", 4),
        Key("num_attention_heads", "attention.n_heads", 16),
        Key("num_key_value_heads", "attention.n_kv_heads", kv_heads),
        Key("head_dim", "attention.head_dim", 256),
        Key("attention_bias", "attention.bias", False),
        Key("attn_output_gate", only=(True,)),
        rotary("rope_theta", "attention.rotary_base", 10_000.0),
        rotary("partial_rotary_factor", "attention.rotary_pct", 0.25),
        Key("rms_norm_eps", ("norm_eps", "mixer.norm_eps", "attention.norm_eps"), 1e-6),
        Key("hidden_act", only=("silu",)),
        Key("tie_word_embeddings", "tie_embeddings", False),
    )


def expert_keys(part: str, experts: int, chosen: int) -> tuple[Key, ...]:
    """The keys of experts, except norm_topk_prob.

    Args:
        part: name of the part that has the experts.
        experts: default number of experts.
        chosen: default number of experts for each token.
    """
    return (
        Key("num_experts", f"{part}.n_experts", experts),
        Key("num_experts_per_tok", f"{part}.top_k", chosen),
        Key("moe_intermediate_size", f"{part}.d_hidden", 512),
        Key("shared_expert_intermediate_size", f"{part}.d_shared", 512),
    )


def sizes_of(spec: ModelSpec) -> dict[str, int]:
    """Sizes of the parts that rows name."""
    delta = mixer_of(spec, GatedDeltaNetMixer)
    H, _, V = delta.state_shape(spec.d_model)
    sizes = {"one": 1, "half": 2, "qkv": delta.convolved(spec.d_model), "heads": H, "z": H * V}
    return sizes | attention_sizes(spec) | ffn_sizes(spec)


AT, DELTA, FULL = "layers.{i}.", "model.layers.{i}.linear_attn.", "model.layers.{i}.self_attn."
MLP = "model.layers.{i}.mlp."


ROWS = (  # all except the input projection of Gated DeltaNet
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
            f"{AT}mixer.in_proj.{kind}",  # for each head: its queries, then its gate
            tuple(f"{FULL}{name}_proj.{kind}" for name in "qkv"),
            parts=("queries", "keys", "keys"),
            mixer="attention",
        )
        for kind in ("weight", "bias")
    ),
    *(Row(f"{AT}mixer.out_proj.{kind}", f"{FULL}o_proj.{kind}", mixer="attention") for kind in ("weight", "bias")),
    *(Row(f"{AT}mixer.{name}_norm_weight", f"{FULL}{name}_norm.weight") for name in "qk"),
    *gated_mlp(MLP),
    *gated_mlp(f"{MLP}shared_expert.", f"{AT}ffn.shared.", "shared"),
    Row(f"{AT}ffn.shared_gate.weight", f"{MLP}shared_expert_gate.weight"),
    Row(f"{AT}ffn.router.weight", f"{MLP}gate.weight"),
    Row(
        f"{AT}ffn.up_proj",
        tuple(f"{MLP}experts.{{e}}.{name}_proj.weight" for name in ("gate", "up")),
        "h d -> 1 h d",
        parts=("one", "one"),
        fused=(f"{MLP}experts.gate_up_proj", "e (half h) d -> (e half) h d"),  # transformers' layout in memory
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

PROJECTION = Row(
    f"{AT}mixer.in_proj.weight",
    tuple(f"{DELTA}in_proj_{name}.weight" for name in ("qkv", "b", "a", "z")),
    parts=("qkv", "heads", "heads", "z"),
    mixer="gated_deltanet",
)
QWEN3_5 = Format(
    key="qwen3_5",
    title="transformers' Qwen3.5 text model",
    model_type="qwen3_5_text",
    architecture="Qwen3_5ForCausalLM",
    ours=OURS | {"ffn": {"kind": "gated_mlp"}},
    keys=(*keys_around(kv_heads=4), Key("intermediate_size", "ffn.d_hidden"), Key("num_experts", only=(None, 0))),
    rows=(*ROWS, PROJECTION),
    sizes=sizes_of,
    ignored=IGNORED,
)
register(QWEN3_5)

QWEN3_5_MOE = replace(
    QWEN3_5,
    key="qwen3_5_moe",
    title="transformers' Qwen3.5 text model with experts",
    model_type="qwen3_5_moe_text",
    architecture="Qwen3_5MoeForCausalLM",
    ours=OURS | {"ffn": {"kind": "experts"}},
    keys=(
        *keys_around(kv_heads=2),
        *expert_keys("ffn", experts=256, chosen=8),
        Key("norm_topk_prob", "ffn.normalize", only=(True,)),
    ),
)
register(QWEN3_5_MOE)
