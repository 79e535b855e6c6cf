"""transformers' Mamba (model_type "mamba")."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import mixer_of
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.model import ModelSpec

SHARED_ROWS = (  # with Mamba-2
    Row("embedding.weight", "backbone.embeddings.weight"),
    Row("layers.{i}.norm.weight", "backbone.layers.{i}.norm.weight"),
    Row("layers.{i}.mixer.in_proj.weight", "backbone.layers.{i}.mixer.in_proj.weight"),
    Row("layers.{i}.mixer.conv_weight", "backbone.layers.{i}.mixer.conv1d.weight", "c 1 k -> c k"),
    Row("layers.{i}.mixer.conv_bias", "backbone.layers.{i}.mixer.conv1d.bias"),
    Row("layers.{i}.mixer.A_log", "backbone.layers.{i}.mixer.A_log"),
    Row("layers.{i}.mixer.D", "backbone.layers.{i}.mixer.D"),
    Row("layers.{i}.mixer.out_proj.weight", "backbone.layers.{i}.mixer.out_proj.weight"),
    Row("norm.weight", "backbone.norm_f.weight"),
    Row("head.weight", "lm_head.weight"),
)
SHARED_FIXED = {"use_bias": (False,), "use_conv_bias": (True,), "hidden_act": ("silu", "swish")}


def mamba_fields(config: Config) -> tuple[Fields, int]:
    """Those of a Mamba, and the vocabulary's size."""
    rank, width = config["time_step_rank"], config["hidden_size"]
    inner = (
        config.get("intermediate_size") or config["expand"] * width
    )  # in falcon-mamba-7b `expand` is not their ratio
    if inner % width:
        raise ValueError(f"intermediate_size {inner} is no multiple of hidden_size {width}")
    mixer = {
        "kind": "mamba1",
        "d_state": config["state_size"],
        "expand": inner // width,
        "d_conv": config["conv_kernel"],
        "dt_rank": math.ceil(width / 16) if rank == "auto" else rank,
    }
    return shared_fields(config) | {"mixer": mixer}, config["vocab_size"]


def shared_fields(config: Config) -> Fields:
    """Those of the model around the mixers, in transformers' Mamba and Mamba-2."""
    return {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "norm_eps": config["layer_norm_epsilon"],
        "tie_embeddings": config["tie_word_embeddings"],
    }


def mamba_config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    """The config.json of a Mamba."""
    mixer = mixer_of(spec, Mamba1Mixer)
    return {
        "vocab_size": spec.embedding_rows(vocab_size),
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "state_size": mixer.d_state,
        "expand": mixer.expand,
        "intermediate_size": mixer.expand * spec.d_model,
        "conv_kernel": mixer.d_conv,
        "time_step_rank": mixer.rank(spec.d_model),
        "layer_norm_epsilon": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
        "use_bias": False,
        "use_conv_bias": True,
    }


MAMBA = Format(
    key="mamba",
    title="transformers' Mamba",
    model_type="mamba",
    architecture="MambaForCausalLM",
    rows=(
        *SHARED_ROWS,
        Row("layers.{i}.mixer.x_proj.weight", "backbone.layers.{i}.mixer.x_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.weight", "backbone.layers.{i}.mixer.dt_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.bias", "backbone.layers.{i}.mixer.dt_proj.bias"),
    ),
    defaults={
        "state_size": 16, "expand": 2, "conv_kernel": 4, "time_step_rank": "auto", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
    },
    fixed=SHARED_FIXED,
    fields=mamba_fields,
    config=mamba_config,
    tied=("backbone.embeddings.weight", "lm_head.weight"),
)  # fmt: skip
