"""A hybrid model of transformers, a model of fla, and the harness with Mamba-2. `make libraries` has all models."""

from __future__ import annotations

from pathlib import Path

import pytest
from journey import libraries, peers

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("peer", [peers.Qwen35, peers.DeltaNet])
def test_a_repaired_model_works_in_its_library(peer: type[peers.Peer], tmp_path: Path) -> None:
    assert libraries.check_library(peer(), tmp_path) == []


def test_the_harness_before_and_after(tmp_path: Path) -> None:
    assert libraries.check_harness(tmp_path) == []
