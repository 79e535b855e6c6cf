"""fla's Mamba and Mamba-2: model_type and tensor names are those of transformers, some keys of config.json are not.

Earlier versions of fla wrote `time_step_rank`, `time_step_limit` and `rms_norm`, next to `norm_eps`.
"""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.mamba import MAMBA, SHARED_KEYS, WIDTHS
from ssm.models.formats.mamba2 import MAMBA2, head_count
from ssm.models.formats.parts import dt_limit, dt_rank

MARK = "norm_eps"  # transformers writes layer_norm_epsilon instead


def _heads(heads: int | None, config: Config) -> Fields:
    return {} if heads is None else head_count(heads, config)


FLA_MAMBA = replace(
    MAMBA,
    key="fla_mamba",
    title="fla's Mamba",
    mark=MARK,
    keys=(
        *SHARED_KEYS,
        Key("state_size", "mixer.d_state", 16),
        *WIDTHS,
        replace(dt_rank("dt_rank", "mixer.dt_rank", "hidden_size"), also=("time_step_rank",)),
        Key(MARK, "norm_eps", 1e-5),
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
)
register(FLA_MAMBA)

FLA_MAMBA2 = replace(
    MAMBA2,
    key="fla_mamba2",
    title="fla's Mamba-2",
    mark=MARK,
    keys=(
        *SHARED_KEYS,
        Key("num_heads", "mixer", None, read=_heads, write=lambda mixer, D: mixer.heads(D)),
        Key("head_dim", "mixer.head_dim", 64),
        Key("state_size", "mixer.d_state", 128),
        Key("expand", "mixer.expand", 2),
        Key("n_groups", "mixer.n_groups", 1),
        replace(dt_limit("dt_limit", "mixer.dt_limit"), also=("time_step_limit",)),
        Key(MARK, only=(1e-5,), write=lambda spec, D: 1e-5),  # also used by the mixer's norm
        Key("rmsnorm", only=(True,), also=("rms_norm",)),
        Key("norm_before_gate", only=(False,)),
        Key("D_has_hdim", only=(False,)),
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
)
register(FLA_MAMBA2)
