from __future__ import annotations

from pathlib import Path

import pytest
from plan.mini import write_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small config folder."""
    return write_config(tmp_path / "config")
