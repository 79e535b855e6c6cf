from __future__ import annotations

from pathlib import Path

import pytest
from workflow.stand_in import make_place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a small config, a text, and an environment with a stand-in for `ssm`."""
    return make_place(tmp_path)


@pytest.fixture
def own(place: Path) -> Path:
    """The same, with a user's checkpoint and text."""
    (place / "my model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (place / "my model" / name).write_text("{}")
    entry = 'mine-1.3b: {checkpoint: my model, text: ["my text/*.txt"], context: {smoke: 64, paper: 2048}}\n'
    with (place / "config" / "models.yaml").open("a") as models:
        models.write(entry)
    return place
