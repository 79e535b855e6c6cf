"""transformers' RWKV-4, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

from ssm.models.opening import context_of

VARIANTS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied, narrow": {"tie_word_embeddings": True, "intermediate_size": 40},
    "rescaled at inference": {"rescale_every": 2},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("Rwkv", hidden_size=32, num_hidden_layers=3, context_length=96, **changes), tmp_path)
    assert imported.format.key == "rwkv"
    assert context_of(imported.source.config) == 96
