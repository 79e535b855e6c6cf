from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # who only hands out the tests reads this too, and is not to wait for torch
    from ssm.data.store import TokenStore


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _keep_denormals() -> Iterator[None]:
    """Jobs flush denormal numbers in their process; the next test has them again."""
    import torch

    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A small token store, shared by the tests of a session, which only read it."""
    from small import make_store

    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnoses whose pages have no plots: these take two thirds of a small one's time."""
    monkeypatch.setattr("ssm.diagnosis.page.plots", lambda *_: [])
