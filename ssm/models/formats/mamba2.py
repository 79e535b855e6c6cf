"""transformers' Mamba-2 (model_type "mamba2")."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.mamba import SHARED_FIXED, SHARED_ROWS, shared_fields
from ssm.models.formats.parts import as_limit, mixer_of
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    inner, heads = config["expand"] * config["hidden_size"], config["num_heads"]
    if inner != heads * config["head_dim"]:
        raise ValueError(f"expand * hidden_size = {inner} is not num_heads * head_dim = {heads * config['head_dim']}")
    mixer = {
        "kind": "mamba2",
        "d_state": config["state_size"],
        "head_dim": config["head_dim"],
        "expand": config["expand"],
        "n_groups": config["n_groups"],
        "d_conv": config["conv_kernel"],
        "dt_limit": as_limit(config["time_step_limit"]),
    }
    return shared_fields(config) | {"mixer": mixer}, config["vocab_size"]


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = mixer_of(spec, Mamba2Mixer)
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_heads": mixer.heads(spec.d_model),
        "head_dim": mixer.head_dim,
        "state_size": mixer.d_state,
        "expand": mixer.expand,
        "n_groups": mixer.n_groups,
        "conv_kernel": mixer.d_conv,
        "time_step_limit": [mixer.dt_limit[0], math.inf if mixer.dt_limit[1] is None else mixer.dt_limit[1]],
        "layer_norm_epsilon": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
        "use_bias": False,
        "use_conv_bias": True,
    }


MAMBA2 = Format(
    key="mamba2",
    title="transformers' Mamba-2",
    model_type="mamba2",
    architecture="Mamba2ForCausalLM",
    rows=(
        *SHARED_ROWS,
        Row("layers.{i}.mixer.dt_bias", "backbone.layers.{i}.mixer.dt_bias"),
        Row("layers.{i}.mixer.norm_weight", "backbone.layers.{i}.mixer.norm.weight"),
    ),
    defaults={
        "num_heads": 128, "head_dim": 64, "state_size": 128, "expand": 2, "n_groups": 8, "conv_kernel": 4,
        "time_step_limit": (0.0, math.inf), "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
        "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
    },
    fixed=SHARED_FIXED | {"layer_norm_epsilon": (1e-5,)},  # it is that of the mixer's norm too
    fields=_fields,
    config=_config,
    tied=("backbone.embeddings.weight", "lm_head.weight"),
    dt_limit=("time_step_limit",),
)  # fmt: skip
