"""fla's RWKV-7 (model_type "rwkv7")."""

from __future__ import annotations

from ssm.models.formats.fla_parts import layer_norm_rows, rwkv_keys
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key


def _heads(size: int | None, config: Config) -> Fields:
    size = size or config["hidden_size"] // config["num_heads"]
    return {"head_dim": size, "norm_eps": size * config["norm_eps"]}


def _values(dim: int | list[int] | None, config: Config) -> Fields:
    width = config["hidden_size"]
    if dim not in (None, width, [width] * config["num_hidden_layers"]):
        raise ValueError(f"value_dim is {dim}; ssm supports only the model's width, {width}")
    return {}


def _low_rank(ours: str, theirs: str, base: bool = True) -> tuple[Row, ...]:
    at, lora = f"layers.{{i}}.mixer.{ours}", f"model.layers.{{i}}.attn.{theirs}_lora.lora"
    rows = (Row(f"{at}_down", f"{lora}.0.weight", "r d -> d r"), Row(f"{at}_up", f"{lora}.2.weight", "d r -> r d"))
    return (*rows, Row(f"{at}_base", f"{lora}.2.bias")) if base else rows


FLA_RWKV7 = Format(
    key="fla_rwkv7",
    title="fla's RWKV-7",
    model_type="rwkv7",
    architecture="RWKV7ForCausalLM",
    ours={"mixer": {"kind": "rwkv7"}, "ffn": {"kind": "rwkv_channel_mix", "receptance": False}, "norm": "layer"},
    keys=(
        *rwkv_keys(ratio=4),
        Key("norm_eps", "norm_eps", 1e-5),
        Key("num_heads", "mixer", None, write=lambda mixer, D: mixer.heads(D)),
        Key("head_dim", "mixer", 64, read=_heads, write=lambda mixer, D: mixer.head_dim),
        Key("value_dim", "", None, read=_values, write=lambda spec, D: [D] * spec.n_layers),
        Key("decay_low_rank_dim", "mixer.decay_rank", 64, given=True),
        Key("a_low_rank_dim", "mixer.rate_rank", 64, given=True),
        Key("v_low_rank_dim", "mixer.value_rank", 16, given=True),
        Key("gate_low_rank_dim", "mixer.gate_rank", 128, given=True),
    ),
    rows=(
        *layer_norm_rows(),
        Row(
            "layers.{i}.mixer.shift_mix",
            tuple(f"model.layers.{{i}}.attn.x_{name}" for name in "rwkvag"),
            "1 m d -> m d",
            ("one",) * 6,
        ),
        *_low_rank("decay", "w"),
        *_low_rank("rate", "a"),
        *_low_rank("value", "v"),
        *_low_rank("gate", "g", base=False),
        Row("layers.{i}.mixer.removal", "model.layers.{i}.attn.k_k"),
        Row("layers.{i}.mixer.boost", "model.layers.{i}.attn.k_a"),
        Row("layers.{i}.mixer.bonus", "model.layers.{i}.attn.r_k"),
        Row("layers.{i}.mixer.receptance.weight", "model.layers.{i}.attn.r_proj.weight"),
        Row("layers.{i}.mixer.key.weight", "model.layers.{i}.attn.k_proj.weight"),
        Row("layers.{i}.mixer.value.weight", "model.layers.{i}.attn.v_proj.weight"),
        Row("layers.{i}.mixer.norm_weight", "model.layers.{i}.attn.g_norm.weight"),
        Row("layers.{i}.mixer.norm_bias", "model.layers.{i}.attn.g_norm.bias"),
        Row("layers.{i}.mixer.out_proj.weight", "model.layers.{i}.attn.o_proj.weight"),
        Row("layers.{i}.ffn.key_mix", "model.layers.{i}.ffn.x_k"),
        Row("layers.{i}.ffn.key.weight", "model.layers.{i}.ffn.key.weight"),
        Row("layers.{i}.ffn.value.weight", "model.layers.{i}.ffn.value.weight"),
    ),
    sizes=lambda spec: {"one": 1},
)
register(FLA_RWKV7)
