from __future__ import annotations

from pathlib import Path

import pytest
from extension.world import extended, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that breaks, and text; only read."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.fixture(scope="session")
def whole(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An extension with a control arm that nothing disturbed; only read."""
    out = tmp_path_factory.mktemp("whole") / "out"
    extended(world, out, control=True)
    return out
