"""fla's GLA (model_type "gla")."""

from __future__ import annotations

from ssm.models.formats.fla_parts import PLAIN, expanded, keys_around, rows_around, sizes_of
from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Key
from ssm.models.formats.parts import mixer_of
from ssm.specs.mixers.gla import GlaMixer

FLA_GLA = Format(
    key="fla_gla",
    title="fla's GLA",
    model_type="gla",
    architecture="GLAForCausalLM",
    ours={"mixer": {"kind": "gla"}, "ffn": {"kind": "gated_mlp"}},
    keys=(
        *keys_around(),
        *PLAIN,
        Key("clamp_min", only=(None,)),
        Key("num_heads", "mixer.n_heads", 4),
        expanded("expand_k", "mixer.key_dim", 0.5),
        expanded("expand_v", "mixer.value_dim", 1.0),
    ),
    rows=(
        *rows_around({"q_proj": "keys", "k_proj": "keys", "v_proj": "values", "g_proj": "values", "gk_proj.0": "rank"}),
        Row("layers.{i}.mixer.decay_proj.weight", "model.layers.{i}.attn.gk_proj.1.weight"),
        Row("layers.{i}.mixer.decay_proj.bias", "model.layers.{i}.attn.gk_proj.1.bias"),
    ),
    sizes=lambda spec: sizes_of(spec) | {"rank": mixer_of(spec, GlaMixer).gate_rank},
)
register(FLA_GLA)
