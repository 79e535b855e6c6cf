"""What is refused of fla's RWKV-7."""

from __future__ import annotations

import pytest

from ssm.base.errors import CheckpointError
from ssm.models.formats.fla_rwkv7 import FLA_RWKV7
from ssm.specs.model import ModelSpec


def test_what_ours_have_no_other_of_is_refused() -> None:
    sizes = {"vocab_size": 37, "hidden_size": 32, "num_hidden_layers": 2, "head_dim": 16}
    with pytest.raises(CheckpointError, match="value_dim is 64; ssm supports only the model's width, 32"):
        FLA_RWKV7.spec(sizes | {"value_dim": 64}, "tiny", "config.json")
    with pytest.raises(CheckpointError, match="v_low_rank_dim is None"):
        FLA_RWKV7.spec(sizes | {"v_low_rank_dim": None}, "tiny", "config.json")


def test_layers_without_the_first_ones_values_are_refused() -> None:
    mixer = {"kind": "rwkv7", "head_dim": 8, "value_rank": None}
    ffn = {"kind": "rwkv_channel_mix", "d_hidden": 24, "receptance": False}
    fields = {"name": "tiny", "d_model": 16, "n_layers": 2, "peak_lr": 1e-3, "norm": "layer"}
    spec = ModelSpec.parse(fields | {"mixer": mixer, "ffn": ffn}, "test")
    with pytest.raises(CheckpointError, match="cannot be written as fla's RWKV-7"):
        FLA_RWKV7.config_of(spec, 37)
