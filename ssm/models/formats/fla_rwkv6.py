"""fla's RWKV-6 (model_type "rwkv6")."""

from __future__ import annotations

from ssm.models.formats.fla_parts import TIED, layer_norm_rows, per_head, rwkv_keys
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Key


def _head_dim(heads: int, config: Config) -> int:
    return per_head(config, "expand_k")


FLA_RWKV6 = Format(
    key="fla_rwkv6",
    title="fla's RWKV-6",
    model_type="rwkv6",
    architecture="RWKV6ForCausalLM",
    ours={"mixer": {"kind": "rwkv6"}, "ffn": {"kind": "rwkv_channel_mix"}, "norm": "layer"},
    keys=(
        *rwkv_keys(ratio=3.5),
        Key("norm_eps", ("norm_eps", "mixer.norm_eps"), 1e-5),
        Key("expand_k", default=0.5, only=(1.0,)),  # keys and values have the model's width
        Key("expand_v", only=(1.0,)),
        Key("num_heads", "mixer.head_dim", 4, read=_head_dim, write=lambda mixer, D: mixer.heads(D)),
        Key("proj_low_rank_dim", "mixer.shift_rank", 32),
        Key("gate_low_rank_dim", "mixer.decay_rank", 64),
    ),
    rows=(
        *layer_norm_rows(),
        Row("layers.{i}.mixer.shift_mix", "model.layers.{i}.attn.x_proj.0.mu"),
        Row("layers.{i}.mixer.shift_base", "model.layers.{i}.attn.x_bias", "mixed d -> mixed d"),
        Row(
            "layers.{i}.mixer.shift_down",
            "model.layers.{i}.attn.x_proj.0.linear.weight",
            "(mixed r) d -> d (mixed r)",
        ),
        Row("layers.{i}.mixer.shift_up", "model.layers.{i}.attn.x_proj.2.weight", "d (mixed r) -> mixed r d"),
        Row("layers.{i}.mixer.decay_base", "model.layers.{i}.attn.w_proj.linear.lora.2.bias"),
        Row("layers.{i}.mixer.decay_down", "model.layers.{i}.attn.w_proj.linear.lora.0.weight", "n d -> d n"),
        Row("layers.{i}.mixer.decay_up", "model.layers.{i}.attn.w_proj.linear.lora.2.weight", "d n -> n d"),
        Row("layers.{i}.mixer.bonus", "model.layers.{i}.attn.bonus"),
        Row("layers.{i}.mixer.receptance.weight", "model.layers.{i}.attn.r_proj.linear.weight"),
        Row("layers.{i}.mixer.key.weight", "model.layers.{i}.attn.k_proj.linear.weight"),
        Row("layers.{i}.mixer.value.weight", "model.layers.{i}.attn.v_proj.linear.weight"),
        Row("layers.{i}.mixer.gate.weight", "model.layers.{i}.attn.g_proj.linear.weight"),
        Row("layers.{i}.mixer.norm_weight", "model.layers.{i}.attn.g_norm.weight"),
        Row("layers.{i}.mixer.norm_bias", "model.layers.{i}.attn.g_norm.bias"),
        Row("layers.{i}.mixer.out_proj.weight", "model.layers.{i}.attn.o_proj.weight"),
        Row("layers.{i}.ffn.key_mix", "model.layers.{i}.ffn.key.mu"),
        Row("layers.{i}.ffn.receptance_mix", "model.layers.{i}.ffn.receptance.mu"),
        Row("layers.{i}.ffn.key.weight", "model.layers.{i}.ffn.key.linear.weight"),
        Row("layers.{i}.ffn.receptance.weight", "model.layers.{i}.ffn.receptance.linear.weight"),
        Row("layers.{i}.ffn.value.weight", "model.layers.{i}.ffn.value.weight"),
    ),
    tied=TIED,
    sizes=lambda spec: {"mixed": 5},
    picks={"mixed": (1, 2, 3, 0, 4)},  # theirs: receptance, decay, key, value, gate; ours: decay, key, value, ...
)
register(FLA_RWKV6)
