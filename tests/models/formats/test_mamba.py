"""transformers' Mamba, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

from ssm.models.opening import context_of

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "odd sizes": {"state_size": 5, "expand": 3, "conv_kernel": 2, "time_step_rank": 3, "layer_norm_epsilon": 1e-3},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("Mamba", hidden_size=32, num_hidden_layers=3, **changes), tmp_path)
    assert imported.format.key == "mamba"
    assert imported.spec.mixer.kind == "mamba1"
    assert context_of(imported.source.config) is None
