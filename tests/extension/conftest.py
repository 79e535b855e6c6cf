from __future__ import annotations

from pathlib import Path

import pytest
from extension.world import extended, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that breaks, and text. Tests do not change them."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.fixture(scope="session")
def whole(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete extension with a control arm. Tests do not change it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    extended(world, out, control=True)
    return out
