from __future__ import annotations

import pytest
import torch
from small import make_store

from ssm.data.store import TokenStore

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A small token store, shared by the tests of a session, which only read it."""
    return make_store(tmp_path_factory.mktemp("store"))
