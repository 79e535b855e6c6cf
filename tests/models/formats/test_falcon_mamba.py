"""transformers' Falcon Mamba, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    # As in tiiuae/falcon-mamba-7b, whose `expand` is not the ratio of its widths; and norms whose epsilon is felt.
    "published": {
        "tie_word_embeddings": False, "expand": 16, "intermediate_size": 64, "time_step_rank": 3, "mixer_rms_eps": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("FalconMamba", hidden_size=32, num_hidden_layers=3, **changes), tmp_path)
    assert imported.format.key == "falcon_mamba"
    assert imported.spec.mixer.selection_norm_eps == changes.get("mixer_rms_eps", 1e-6)
    assert imported.spec.mixer.expand == 2
