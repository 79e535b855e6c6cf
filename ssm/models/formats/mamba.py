"""transformers' Mamba ("mamba"), and Falcon Mamba ("falcon_mamba") with norms without weights on dt, B and C."""

from __future__ import annotations

from dataclasses import replace

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Key
from ssm.models.formats.parts import SIZES, dt_rank

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
SHARED_KEYS = (
    *SIZES,
    Key("conv_kernel", "mixer.d_conv", 4),
    Key("use_bias", only=(False,)),
    Key("use_conv_bias", only=(True,)),
    Key("hidden_act", only=("silu", "swish")),
)


def _expand(inner: int | None, config: Config) -> int:
    """The ratio of the inner width to the width. In falcon-mamba-7b, `expand` differs from this ratio."""
    width = config["hidden_size"]
    inner = inner or config["expand"] * width
    if inner % width:
        raise ValueError(f"intermediate_size {inner} is not a multiple of hidden_size {width}")
    return inner // width


WIDTHS = (  # with fla's Mamba
    Key("expand", "mixer.expand", 2),
    Key("intermediate_size", "mixer.expand", None, read=_expand, write=lambda mixer, D: mixer.expand * D),
)
MAMBA = Format(
    key="mamba",
    title="transformers' Mamba",
    model_type="mamba",
    architecture="MambaForCausalLM",
    ours={"mixer": {"kind": "mamba1"}},
    keys=(
        *SHARED_KEYS,
        Key("state_size", "mixer.d_state", 16),
        *WIDTHS,
        dt_rank("time_step_rank", "mixer.dt_rank", "hidden_size"),
        Key("layer_norm_epsilon", "norm_eps", 1e-5),
        Key("tie_word_embeddings", "tie_embeddings", True),
    ),
    rows=(
        *SHARED_ROWS,
        Row("layers.{i}.mixer.x_proj.weight", "backbone.layers.{i}.mixer.x_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.weight", "backbone.layers.{i}.mixer.dt_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.bias", "backbone.layers.{i}.mixer.dt_proj.bias"),
    ),
)
register(MAMBA)

FALCON_MAMBA = replace(
    MAMBA,
    key="falcon_mamba",
    title="transformers' Falcon Mamba",
    model_type="falcon_mamba",
    architecture="FalconMambaForCausalLM",
    keys=(*MAMBA.keys, Key("mixer_rms_eps", "mixer.selection_norm_eps", 1e-6, given=True)),
)
register(FALCON_MAMBA)
