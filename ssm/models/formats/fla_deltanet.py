"""fla's DeltaNet (model_type "delta_net")."""

from __future__ import annotations

from ssm.models.formats.fla_delta import KEYS, rows, sizes
from ssm.models.formats.fla_parts import TIED, expanded
from ssm.models.formats.format import Format, register
from ssm.models.formats.keys import Key

FLA_DELTANET = Format(
    key="fla_deltanet",
    title="fla's DeltaNet",
    model_type="delta_net",
    architecture="DeltaNetForCausalLM",
    ours={"mixer": {"kind": "deltanet"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        Key("num_heads", "mixer.n_heads", 16),
        expanded("expand_k", "mixer.key_dim", 1.0),
        expanded("expand_v", "mixer.value_dim", 1.0),
        Key("use_gate", "mixer.gate", False),
        Key("use_beta", only=(True,)),
        Key("qk_norm", only=("l2",)),
        Key("qk_activation", only=("silu",)),
    ),
    rows=rows({"g_proj": "gate"}),
    tied=TIED,
    sizes=sizes,
)
register(FLA_DELTANET)
