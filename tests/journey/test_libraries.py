"""The roads of transformers, of fla and of the harness; mamba_ssm's needs a package that is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from journey import libraries, peers

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("peer", [peers.Mamba2, peers.Qwen35, peers.Bamba, peers.DeltaNet, peers.GatedDeltaNet])
def test_from_start_to_a_repaired_model_and_back(peer: type[peers.Peer], tmp_path: Path) -> None:
    assert libraries.travel(peer(), tmp_path) == []


def test_the_harness_before_and_after(tmp_path: Path) -> None:
    assert libraries.harness(tmp_path) == []
