"""transformers' Mamba-2, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

VARIANTS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "one group, limited dt": {"n_groups": 1, "time_step_limit": (0.05, 0.5), "conv_kernel": 3},
    "no lower dt": {"time_step_limit": (0.1, float("inf"))},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2}
    imported = hf.check(hf.made("Mamba2", **(sizes | changes), chunk_size=8), tmp_path)
    assert imported.format.key == "mamba2"
    assert imported.spec.mixer.kind == "mamba2"
