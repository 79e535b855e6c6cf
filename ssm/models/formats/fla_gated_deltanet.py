"""fla's Gated DeltaNet (model_type "gated_deltanet")."""

from __future__ import annotations

from ssm.models.formats.fla_delta import GATES, KEYS, grouped, rows, sizes
from ssm.models.formats.fla_parts import TIED
from ssm.models.formats.format import Format, register
from ssm.models.formats.keys import Key

FLA_GATED_DELTANET = Format(
    key="fla_gated_deltanet",
    title="fla's Gated DeltaNet",
    model_type="gated_deltanet",
    architecture="GatedDeltaNetForCausalLM",
    ours={"mixer": {"kind": "gated_deltanet"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *KEYS,
        *grouped(6, 256, 2.0, "mixer.value_dim"),
        Key("use_gate", "mixer.gate", True),
        Key("output_gate_activation", "mixer.gate_activation", only=GATES),
    ),
    rows=rows({"a_proj": "heads", "g_proj": "gate"}),
    tied=TIED,
    sizes=sizes,
)
register(FLA_GATED_DELTANET)
