"""transformers' Qwen3.5 text models with experts (model_type "qwen3_5_moe_text")."""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import register
from ssm.models.formats.keys import Key
from ssm.models.formats.qwen3_5 import QWEN3_5
from ssm.models.formats.qwen_parts import OURS, expert_keys, keys_around

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
