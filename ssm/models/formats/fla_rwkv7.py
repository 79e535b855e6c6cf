"""fla's RWKV-7 (model_type "rwkv7")."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.fla_parts import TIED, layer_norm_rows, rwkv_config, rwkv_fields
from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import mixer_of
from ssm.specs.mixers.rwkv7 import Rwkv7Mixer
from ssm.specs.model import ModelSpec

RANKS = {  # theirs -> ours
    "decay_low_rank_dim": "decay_rank",
    "a_low_rank_dim": "rate_rank",
    "v_low_rank_dim": "value_rank",
    "gate_low_rank_dim": "gate_rank",
}


def _fields(config: Config) -> tuple[Fields, int]:
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    if config["value_dim"] not in (None, width, [width] * layers):
        raise ValueError(f"value_dim is {config['value_dim']}, and ours has values of the model's width {width}")
    for rank in RANKS:
        if config[rank] is None:
            raise ValueError(f"{rank} is None")
    head_dim = config["head_dim"] or width // config["num_heads"]
    ranks = {ours: config[theirs] for theirs, ours in RANKS.items()}
    mixer = {"kind": "rwkv7", "head_dim": head_dim, "norm_eps": head_dim * config["norm_eps"], **ranks}
    return rwkv_fields(config, mixer, ratio=4, receptance=False)


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, Rwkv7Mixer)
    return rwkv_config(spec, vocab_size) | {
        "head_dim": mixer.head_dim,
        "value_dim": [spec.d_model] * spec.n_layers,
        **{theirs: getattr(mixer, ours) for theirs, ours in RANKS.items()},
    }


def _low_rank(ours: str, theirs: str, base: bool = True) -> tuple[Row, ...]:
    at, lora = f"layers.{{i}}.mixer.{ours}", f"model.layers.{{i}}.attn.{theirs}_lora.lora"
    rows = (Row(f"{at}_down", f"{lora}.0.weight", "r d -> d r"), Row(f"{at}_up", f"{lora}.2.weight", "d r -> r d"))
    return (*rows, Row(f"{at}_base", f"{lora}.2.bias")) if base else rows


FLA_RWKV7 = Format(
    key="fla_rwkv7",
    title="fla's RWKV-7",
    model_type="rwkv7",
    architecture="RWKV7ForCausalLM",
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
    defaults={
        "head_dim": 64, "num_heads": None, "hidden_ratio": 4, "intermediate_size": None, "decay_low_rank_dim": 64,
        "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 16, "value_dim": None, "norm_first": True,
        "norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "sqrelu", "norm_bias": True,
    },
    fixed={"hidden_act": ("sqrelu",), "norm_bias": (True,), "attn": (None,)},
    fields=_fields,
    config=_config,
    tied=TIED,
    sizes=lambda spec: {"one": 1},
)  # fmt: skip
