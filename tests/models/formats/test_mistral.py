"""What transformers' Mistral is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.formats import hf

from ssm.base.errors import CheckpointError
from ssm.models.formats import import_checkpoint
from ssm.models.formats.mistral import MISTRAL

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}


def test_heads_that_are_rotated_in_part_are_no_mistral(tmp_path: Path) -> None:
    """transformers' Mistral has no such field, and would rotate them whole."""
    hf.made("Mistral", **SIZES, num_key_value_heads=2, sliding_window=6).save_pretrained(tmp_path)
    imported = import_checkpoint(tmp_path)
    mixer = imported.spec.mixer.model_copy(update={"rotary_pct": 0.25})
    with pytest.raises(CheckpointError, match=r"transformers' Mistral: .*rotary_pct is 0\.25, there 1\.0"):
        MISTRAL.config_of(imported.spec.model_copy(update={"mixer": mixer}), 256)
