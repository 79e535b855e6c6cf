"""What is refused of fla's DeltaNet, Gated DeltaNet and KDA."""

from __future__ import annotations

import pytest

from ssm.base.errors import CheckpointError
from ssm.models.formats.fla_deltanet import FLA_DELTANET
from ssm.models.formats.fla_kda import FLA_KDA
from ssm.specs.model import ModelSpec


def test_what_ours_have_no_other_of_is_refused() -> None:
    sizes = {"vocab_size": 37, "hidden_size": 32, "num_hidden_layers": 3}
    for form, key, value in (
        (FLA_DELTANET, "use_beta", False),
        (FLA_DELTANET, "qk_norm", "sum"),
        (FLA_DELTANET, "use_short_conv", False),
        (FLA_KDA, "lower_bound", -5.0),
    ):
        with pytest.raises(CheckpointError, match=f"{key} is {value!r}; ssm supports only .* for {form.title}"):
            form.spec(sizes | {key: value}, "tiny", "config.json")


def test_a_rank_that_theirs_has_not_is_refused() -> None:
    mixer = {"kind": "kda", "n_heads": 2, "gate_rank": 3}
    fields = {"name": "tiny", "d_model": 16, "n_layers": 2, "peak_lr": 1e-3, "mixer": mixer}
    spec = ModelSpec.parse(fields | {"ffn": {"kind": "gated_mlp", "d_hidden": 24}}, "test")
    with pytest.raises(CheckpointError, match=r"tiny: cannot be written as fla's KDA: .*gate_rank is 3, there 8"):
        FLA_KDA.config_of(spec, 37)
