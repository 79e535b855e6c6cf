"""transformers' Qwen3.5 text models (model_type "qwen3_5_text"), and those with experts ("qwen3_5_moe_text")."""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import Format, Row
from ssm.models.formats.parts import ffn_of
from ssm.models.formats.qwen_parts import (
    AT,
    DEFAULTS,
    DELTA,
    EXPERTS,
    FIXED,
    IGNORED,
    ROWS,
    TIED,
    config_around,
    config_of_experts,
    dense,
    experts,
    fields_of,
    sizes_of,
)
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp

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
    rows=(*ROWS, PROJECTION),
    defaults=DEFAULTS,
    fixed=FIXED | {"num_experts": (None, 0)},
    fields=lambda config: fields_of(config, {"ffn": dense(config)}),
    config=lambda spec, vocab_size: (
        config_around(spec, vocab_size) | {"intermediate_size": ffn_of(spec, GatedMlp).d_hidden}
    ),
    tied=TIED,
    sizes=sizes_of,
    ignored=IGNORED,
)
QWEN3_5_MOE = replace(
    QWEN3_5,
    key="qwen3_5_moe",
    title="transformers' Qwen3.5 text model with experts",
    model_type="qwen3_5_moe_text",
    architecture="Qwen3_5MoeForCausalLM",
    defaults=DEFAULTS | EXPERTS,
    fixed=FIXED | {"norm_topk_prob": (True,)},
    fields=lambda config: fields_of(config, {"ffn": experts(config)}),
    config=lambda spec, vocab_size: config_around(spec, vocab_size) | config_of_experts(ffn_of(spec, Experts)),
)
