"""transformers' RecurrentGemma in and out: a hybrid with a scaled embedding, capped logits, an unscaled first input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.formats import hf

SIZES = {
    "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32,
    "intermediate_size": 96, "attention_window_size": 8,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "untied, biased, no sharing": {"tie_word_embeddings": False, "attention_bias": True, "num_key_value_heads": None},
    "low cap": {"logits_soft_cap": 2.0, "conv1d_width": 2, "block_types": ["attention", "recurrent"]},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = hf.check(hf.made("RecurrentGemma", **(SIZES | changes)), tmp_path)
    assert imported.format.key == "recurrent_gemma"
    kinds = [mixer.kind for mixer in imported.spec.mixers()]
    assert kinds.count("attention") == (2 if "block_types" in changes else 1)
