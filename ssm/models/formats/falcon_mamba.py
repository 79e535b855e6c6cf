"""transformers' Falcon Mamba (model_type "falcon_mamba"): Mamba with norms on dt, B and C that have no weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ssm.models.formats.format import Config, Fields, Format
from ssm.models.formats.mamba import MAMBA, mamba_config, mamba_fields
from ssm.models.formats.parts import mixer_of
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    fields, vocab_size = mamba_fields(config)
    return fields | {"mixer": fields["mixer"] | {"selection_norm_eps": config["mixer_rms_eps"]}}, vocab_size


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    eps = mixer_of(spec, Mamba1Mixer).selection_norm_eps
    if eps is None:
        raise ValueError("its dt, B and C are normalized")
    return mamba_config(spec, vocab_size) | {"mixer_rms_eps": eps}


FALCON_MAMBA: Format = replace(
    MAMBA,
    key="falcon_mamba",
    title="transformers' Falcon Mamba",
    model_type="falcon_mamba",
    architecture="FalconMambaForCausalLM",
    defaults={**MAMBA.defaults, "mixer_rms_eps": 1e-6},
    fields=_fields,
    config=_config,
)
