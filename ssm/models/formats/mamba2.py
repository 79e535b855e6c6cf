"""transformers' Mamba-2 (model_type "mamba2")."""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.mamba import SHARED_KEYS, SHARED_ROWS
from ssm.models.formats.parts import dt_limit


def head_count(heads: int, config: Config) -> Fields:
    """Check the number of heads, which follows from other fields."""
    inner, wanted = config["expand"] * config["hidden_size"], heads * config["head_dim"]
    if inner != wanted:
        raise ValueError(f"expand * hidden_size = {inner} is not num_heads * head_dim = {wanted}")
    return {}


MAMBA2 = Format(
    key="mamba2",
    title="transformers' Mamba-2",
    model_type="mamba2",
    architecture="Mamba2ForCausalLM",
    ours={"mixer": {"kind": "mamba2"}},
    keys=(
        *SHARED_KEYS,
        Key("num_heads", "mixer", 128, read=head_count, write=lambda mixer, D: mixer.heads(D)),
        Key("head_dim", "mixer.head_dim", 64),
        Key("state_size", "mixer.d_state", 128),
        Key("expand", "mixer.expand", 2),
        Key("n_groups", "mixer.n_groups", 8),
        dt_limit("time_step_limit", "mixer.dt_limit"),
        Key("layer_norm_epsilon", "norm_eps", only=(1e-5,)),  # also used by the mixer's norm
        Key("tie_word_embeddings", "tie_embeddings", False),
    ),
    rows=(
        *SHARED_ROWS,
        Row("layers.{i}.mixer.dt_bias", "backbone.layers.{i}.mixer.dt_bias"),
        Row("layers.{i}.mixer.norm_weight", "backbone.layers.{i}.mixer.norm.weight"),
    ),
)
register(MAMBA2)
