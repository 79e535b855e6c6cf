from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest
from models.formats import hf


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    hf.made("Mamba", hidden_size=32, num_hidden_layers=3).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def fla() -> ModuleType:
    """fla's own models on the CPU. Their import takes seconds."""
    from models.formats import fla_on_cpu

    return fla_on_cpu


@pytest.fixture
def original(made_once: Path, tmp_path: Path) -> Path:
    """The folder of a small Mamba of transformers, which a test can change."""
    return Path(shutil.copytree(made_once, tmp_path / "original"))
