"""transformers' Mistral, in and out: grouped heads, a sliding window, heads of their own width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

from ssm.base.errors import CheckpointError
from ssm.models.formats.mistral import MISTRAL

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
VARIANTS: dict[str, dict[str, Any]] = {
    "the first release's": {"num_key_value_heads": 2, "sliding_window": 6},
    "without a window, heads of another width": {"num_key_value_heads": 1, "sliding_window": None, "head_dim": 12},
    "tied, another base": {
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("Mistral", **SIZES, **changes), tmp_path)
    assert imported.format.key == "mistral"
    assert imported.spec.mixer.window == changes.get("sliding_window", 4096)
    assert imported.spec.mixer.rotary_base == changes.get("rope_parameters", {}).get("rope_theta", 10_000)
    assert imported.spec.mixer.n_kv_heads == changes["num_key_value_heads"]


def test_heads_that_are_rotated_in_part_are_no_mistral(tmp_path: Path) -> None:
    """transformers' Mistral has no such field, and would rotate them whole."""
    imported = hf.check(hf.made("Mistral", **SIZES, **VARIANTS["the first release's"]), tmp_path)
    mixer = imported.spec.mixer.model_copy(update={"rotary_pct": 0.25})
    with pytest.raises(CheckpointError, match=r"transformers' Mistral: .*rotary_pct is 0\.25, there 1\.0"):
        MISTRAL.config_of(imported.spec.model_copy(update={"mixer": mixer}), 256)
