"""A model of fla, and the harness with Mamba-2. `make libraries` has all models."""

from __future__ import annotations

from pathlib import Path

import pytest
from journey import libraries, peers

pytestmark = pytest.mark.exhaustive


def test_a_repaired_model_works_in_its_library(tmp_path: Path) -> None:
    assert libraries.check_library(peers.DeltaNet(), tmp_path) == []


def test_the_harness_reads_a_repaired_model(tmp_path: Path) -> None:
    assert libraries.check_harness(tmp_path) == []
