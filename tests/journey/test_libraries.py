"""Models of transformers and fla, and the harness. mamba_ssm needs a package that is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from journey import libraries, peers

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("peer", [peers.Mamba2, peers.Qwen35, peers.Bamba, peers.DeltaNet, peers.GatedDeltaNet])
def test_a_repaired_model_works_in_its_library(peer: type[peers.Peer], tmp_path: Path) -> None:
    assert libraries.check_library(peer(), tmp_path) == []


def test_the_harness_before_and_after(tmp_path: Path) -> None:
    assert libraries.check_harness(tmp_path) == []
