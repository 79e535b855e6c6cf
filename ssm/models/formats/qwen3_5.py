"""transformers' Qwen3.5 text models (model_type "qwen3_5_text")."""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Key
from ssm.models.formats.qwen_parts import AT, DELTA, IGNORED, OURS, ROWS, TIED, keys_around, sizes_of

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
    keys=(
        *keys_around(kv_heads=4),
        Key("intermediate_size", "ffn.d_hidden"),
        Key("num_experts", only=(None, 0)),
    ),
    rows=(*ROWS, PROJECTION),
    tied=TIED,
    sizes=sizes_of,
    ignored=IGNORED,
)
register(QWEN3_5)
