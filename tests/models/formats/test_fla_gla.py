"""fla's GLA, in and out."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ssm.models.opening import context_of

VARIANTS: dict[str, dict[str, Any]] = {
    "fused": {},
    "norm and gate apart": {"fuse_norm": False, "fuse_swiglu": False},
    "odd sizes, tied": {
        "num_heads": 3, "hidden_size": 36, "expand_k": 1.5, "expand_v": 0.5, "intermediate_size": 40,
        "tie_word_embeddings": True, "norm_eps": 1e-3,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path, fla: ModuleType) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_heads": 2, "max_position_embeddings": 128}
    imported = fla.check(fla.made("GLA", **(sizes | changes)), tmp_path)
    assert imported.format.key == "fla_gla"
    assert context_of(imported.source.config) == 128
