"""transformers' Falcon Mamba (model_type "falcon_mamba"): Mamba with norms on dt, B and C that have no weights."""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import register
from ssm.models.formats.keys import Key
from ssm.models.formats.mamba import MAMBA

FALCON_MAMBA = replace(
    MAMBA,
    key="falcon_mamba",
    title="transformers' Falcon Mamba",
    model_type="falcon_mamba",
    architecture="FalconMambaForCausalLM",
    keys=(*MAMBA.keys, Key("mixer_rms_eps", "mixer.selection_norm_eps", 1e-6, given=True)),
)
register(FALCON_MAMBA)
