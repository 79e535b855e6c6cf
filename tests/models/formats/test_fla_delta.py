"""fla's DeltaNet, Gated DeltaNet and KDA, in and out."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ssm.base.errors import CheckpointError
from ssm.models.formats.fla_delta import FLA_DELTANET, FLA_KDA
from ssm.models.opening import context_of
from ssm.specs.model import ModelSpec

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "deltanet": ("DeltaNet", {"num_heads": 2}),
    "deltanet, gate, tied": (
        "DeltaNet",
        {
            "num_heads": 3, "hidden_size": 36, "expand_k": 0.5, "expand_v": 1.5, "use_gate": True, "conv_size": 3,
            "allow_neg_eigval": True, "intermediate_size": 40, "tie_word_embeddings": True, "norm_eps": 1e-3,
        },
    ),
    "gated_deltanet": ("GatedDeltaNet", {"num_heads": 2, "head_dim": 12}),
    "gated_deltanet, grouped, no gate": (
        "GatedDeltaNet",
        {"num_heads": 2, "num_v_heads": 4, "head_dim": 6, "expand_v": 1.5, "use_gate": False, "fuse_norm": False},
    ),
    "gated_deltanet, sigmoid": (
        "GatedDeltaNet",
        {"num_heads": 1, "head_dim": 7, "expand_v": 1.0, "output_gate_activation": "sigmoid", "allow_neg_eigval": True},
    ),
    "kda": ("KDA", {"num_heads": 2, "head_dim": 8}),
    "kda, grouped": (
        "KDA", {"num_heads": 1, "num_v_heads": 3, "head_dim": 6, "expand_v": 0.5, "conv_size": 2, "norm_eps": 1e-3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "changes"), VARIANTS.values(), ids=VARIANTS)
def test_round_trip(kind: str, changes: dict[str, Any], tmp_path: Path, fla: ModuleType) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "max_position_embeddings": 128}
    imported = fla.check(fla.made(kind, **(sizes | changes)), tmp_path)
    assert imported.format.key == f"fla_{imported.spec.mixer.kind}"
    assert imported.spec.mixer.kind.replace("_", "") == kind.lower()
    assert context_of(imported.source.config) == 128


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
