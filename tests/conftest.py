from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small import make_store

from ssm.data.store import TokenStore

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _keep_denormals() -> Iterator[None]:
    """Jobs flush denormal numbers in their process; the next test has them again."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A small token store, shared by the tests of a session, which only read it."""
    return make_store(tmp_path_factory.mktemp("store"))
