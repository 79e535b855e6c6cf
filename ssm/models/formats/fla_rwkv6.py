"""fla's RWKV-6 (model_type "rwkv6")."""

from __future__ import annotations

from ssm.models.formats.fla_parts import layer_norm_rows, per_head, rwkv_keys
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Key


def _head_dim(heads: int, config: Config) -> int:
    return per_head(config, "expand_k")


AT, MIXER, FFN = "layers.{i}.", "model.layers.{i}.attn.", "model.layers.{i}.ffn."
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
        Row(f"{AT}mixer.shift_mix", f"{MIXER}x_proj.0.mu"),
        Row(f"{AT}mixer.shift_base", f"{MIXER}x_bias", "mixed d -> mixed d"),
        Row(f"{AT}mixer.shift_down", f"{MIXER}x_proj.0.linear.weight", "(mixed r) d -> d (mixed r)"),
        Row(f"{AT}mixer.shift_up", f"{MIXER}x_proj.2.weight", "d (mixed r) -> mixed r d"),
        Row(f"{AT}mixer.decay_base", f"{MIXER}w_proj.linear.lora.2.bias"),
        Row(f"{AT}mixer.decay_down", f"{MIXER}w_proj.linear.lora.0.weight", "n d -> d n"),
        Row(f"{AT}mixer.decay_up", f"{MIXER}w_proj.linear.lora.2.weight", "d n -> n d"),
        Row(f"{AT}mixer.bonus", f"{MIXER}bonus"),
        Row(f"{AT}mixer.receptance.weight", f"{MIXER}r_proj.linear.weight"),
        Row(f"{AT}mixer.key.weight", f"{MIXER}k_proj.linear.weight"),
        Row(f"{AT}mixer.value.weight", f"{MIXER}v_proj.linear.weight"),
        Row(f"{AT}mixer.gate.weight", f"{MIXER}g_proj.linear.weight"),
        Row(f"{AT}mixer.norm_weight", f"{MIXER}g_norm.weight"),
        Row(f"{AT}mixer.norm_bias", f"{MIXER}g_norm.bias"),
        Row(f"{AT}mixer.out_proj.weight", f"{MIXER}o_proj.weight"),
        Row(f"{AT}ffn.key_mix", f"{FFN}key.mu"),
        Row(f"{AT}ffn.receptance_mix", f"{FFN}receptance.mu"),
        Row(f"{AT}ffn.key.weight", f"{FFN}key.linear.weight"),
        Row(f"{AT}ffn.receptance.weight", f"{FFN}receptance.linear.weight"),
        Row(f"{AT}ffn.value.weight", f"{FFN}value.weight"),
    ),
    sizes=lambda spec: {"mixed": 5},
    picks={"mixed": (1, 2, 3, 0, 4)},  # theirs: receptance, decay, key, value, gate; ours: decay, key, value, ...
)
register(FLA_RWKV6)
