"""fla's KDA, Kimi Delta Attention (model_type "kda")."""

from __future__ import annotations

from ssm.models.formats.fla_delta import KEYS, grouped, rows, sizes
from ssm.models.formats.fla_parts import TIED
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Key

FLA_KDA = Format(
    key="fla_kda",
    title="fla's KDA",
    model_type="kda",
    architecture="KDAForCausalLM",
    ours={"mixer": {"kind": "kda"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        *grouped(16, 128, 1.0, "mixer.value_dim", "mixer.gate_rank"),
        Key("safe_gate", only=(False,)),  # True: the decay has a lower bound
        Key("lower_bound", only=(None,)),
    ),
    rows=(
        *rows({"f_proj.0": "rank", "g_proj.0": "rank"}),
        Row("layers.{i}.mixer.decay_proj.weight", "model.layers.{i}.attn.f_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.weight", "model.layers.{i}.attn.g_proj.1.weight"),
        Row("layers.{i}.mixer.gate_proj.bias", "model.layers.{i}.attn.g_proj.1.bias"),
    ),
    tied=TIED,
    sizes=sizes,
)
register(FLA_KDA)
