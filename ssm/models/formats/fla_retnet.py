"""fla's RetNet (model_type "retnet")."""

from __future__ import annotations

from ssm.models.formats.fla_parts import PLAIN, expanded, keys_around, rows_around, sizes_of
from ssm.models.formats.format import Format, register
from ssm.models.formats.keys import Key

FLA_RETNET = Format(
    key="fla_retnet",
    title="fla's RetNet",
    model_type="retnet",
    architecture="RetNetForCausalLM",
    ours={"mixer": {"kind": "retnet", "norm": "rms"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *keys_around(ratio=2),
        *PLAIN,
        Key("num_heads", "mixer.n_heads", 8),
        expanded("expand_k", "mixer.key_dim", 1.0),
        expanded("expand_v", "mixer.value_dim", 2.0),
    ),
    rows=rows_around({"q_proj": "keys", "k_proj": "keys", "v_proj": "values", "g_proj": "values"}),
    sizes=sizes_of,
)
register(FLA_RETNET)
