"""fla's RWKV-6, in and out."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

VARIANTS: dict[str, dict[str, Any]] = {
    "fused": {},
    "norms apart, none first": {"fuse_norm": False, "norm_first": False},
    "odd ranks, tied": {
        "proj_low_rank_dim": 3, "gate_low_rank_dim": 5, "intermediate_size": 40, "tie_word_embeddings": True,
        "norm_eps": 1e-3,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(changes: dict[str, Any], tmp_path: Path, fla: ModuleType) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_heads": 2, "expand_k": 1.0, "expand_v": 1.0}
    imported = fla.check(fla.made("RWKV6", **(sizes | changes)), tmp_path)
    assert imported.format.key == "fla_rwkv6"
    assert imported.spec.mixer.kind == "rwkv6"
