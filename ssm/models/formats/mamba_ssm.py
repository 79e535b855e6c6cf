"""mamba_ssm's Mamba and Mamba-2: the checkpoints state-spaces/mamba-* and state-spaces/mamba2-*."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import as_limit
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec

# What its layers take by default, and what ours have no other of.
LAYERS: dict[str, dict[str, Any]] = {
    "Mamba1": {"d_state": 16, "d_conv": 4, "expand": 2, "dt_rank": "auto"},
    "Mamba2": {"d_state": 128, "d_conv": 4, "expand": 2, "headdim": 64, "ngroups": 1, "dt_limit": (0.0, math.inf)},
}
LAYERS_FIXED: dict[str, dict[str, Any]] = {
    "Mamba1": {"bias": False, "conv_bias": True},
    "Mamba2": {
        "bias": False, "conv_bias": True, "rmsnorm": True, "norm_before_gate": False, "D_has_hdim": False,
        "d_ssm": None,
    },
}  # fmt: skip


def _fields(config: Config) -> tuple[Fields, int]:
    given = dict(config["ssm_cfg"] or {})
    layer = given.pop("layer", "Mamba1")
    if layer not in LAYERS:
        raise ValueError(f"ssm_cfg.layer is {layer!r}; known are {' and '.join(LAYERS)}")
    for key, value in LAYERS_FIXED[layer].items():
        if given.get(key, value) != value:
            raise ValueError(f"ssm_cfg.{key} is {given[key]!r}; known is {value!r} alone")
    options = LAYERS[layer] | given
    mixer = {"d_state": options["d_state"], "d_conv": options["d_conv"], "expand": options["expand"]}
    if layer == "Mamba1":
        rank = options["dt_rank"]
        mixer |= {"kind": "mamba1", "dt_rank": math.ceil(config["d_model"] / 16) if rank == "auto" else rank}
    else:
        mixer |= {"kind": "mamba2", "head_dim": options["headdim"], "n_groups": options["ngroups"]}
        mixer |= {"dt_limit": as_limit(options["dt_limit"])}
    fields = {
        "d_model": config["d_model"],
        "n_layers": config["n_layer"],
        "mixer": mixer,
        "norm": "rms" if config["rms_norm"] else "layer",
        "tie_embeddings": config["tie_embeddings"],
        "vocab_multiple": config["pad_vocab_size_multiple"],
    }
    return fields, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = spec.mixer
    layer: dict[str, Any] = {}
    if isinstance(mixer, Mamba2Mixer):
        layer = {"layer": "Mamba2", "headdim": mixer.head_dim, "ngroups": mixer.n_groups}
        if mixer.dt_limit != (0.0, None):
            layer["dt_limit"] = [mixer.dt_limit[0], math.inf if mixer.dt_limit[1] is None else mixer.dt_limit[1]]
    elif isinstance(mixer, Mamba1Mixer):
        layer = {"layer": "Mamba1", "dt_rank": mixer.rank(spec.d_model)}
    else:
        raise ValueError(f"it has no {mixer.kind}")
    return {
        "d_model": spec.d_model,
        "d_intermediate": 0,
        "n_layer": spec.n_layers,
        "vocab_size": vocab_size,
        "ssm_cfg": layer | {"d_state": mixer.d_state, "d_conv": mixer.d_conv, "expand": mixer.expand},
        "attn_layer_idx": [],
        "attn_cfg": {},
        "rms_norm": spec.norm == "rms",
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": spec.vocab_multiple,
        "tie_embeddings": spec.tie_embeddings,
    }


MAMBA_SSM = Format(
    key="mamba_ssm",
    title="mamba_ssm's models",
    model_type=None,
    architecture="MambaLMHeadModel",
    rows=(
        Row("embedding.weight", "backbone.embedding.weight"),
        Row("layers.{i}.norm.weight", "backbone.layers.{i}.norm.weight"),
        Row("layers.{i}.norm.bias", "backbone.layers.{i}.norm.bias"),
        Row("layers.{i}.mixer.in_proj.weight", "backbone.layers.{i}.mixer.in_proj.weight"),
        Row("layers.{i}.mixer.conv_weight", "backbone.layers.{i}.mixer.conv1d.weight", "c 1 k -> c k"),
        Row("layers.{i}.mixer.conv_bias", "backbone.layers.{i}.mixer.conv1d.bias"),
        Row("layers.{i}.mixer.x_proj.weight", "backbone.layers.{i}.mixer.x_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.weight", "backbone.layers.{i}.mixer.dt_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.bias", "backbone.layers.{i}.mixer.dt_proj.bias"),
        Row("layers.{i}.mixer.dt_bias", "backbone.layers.{i}.mixer.dt_bias"),
        Row("layers.{i}.mixer.A_log", "backbone.layers.{i}.mixer.A_log"),
        Row("layers.{i}.mixer.D", "backbone.layers.{i}.mixer.D"),
        Row("layers.{i}.mixer.norm_weight", "backbone.layers.{i}.mixer.norm.weight"),
        Row("layers.{i}.mixer.out_proj.weight", "backbone.layers.{i}.mixer.out_proj.weight"),
        Row("norm.weight", "backbone.norm_f.weight"),
        Row("norm.bias", "backbone.norm_f.bias"),
        Row("head.weight", "lm_head.weight"),
    ),
    defaults={
        "ssm_cfg": {}, "attn_layer_idx": [], "d_intermediate": 0, "rms_norm": True, "tie_embeddings": True,
        "pad_vocab_size_multiple": 8,
    },
    fixed={"attn_layer_idx": ([], None), "d_intermediate": (0,)},
    fields=_fields,
    config=_config,
    tied=("backbone.embedding.weight", "lm_head.weight"),
    keys=("d_model", "n_layer", "vocab_size"),
    writes_tied=True,
    container="bin",
    dt_limit=("ssm_cfg", "dt_limit"),
)  # fmt: skip
