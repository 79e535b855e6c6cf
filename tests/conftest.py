from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:  # the controller process of pytest-xdist should not wait for torch
    from ssm.data.store import TokenStore


# A shell lets its background jobs ignore SIGINT, and the commands that tests interrupt would inherit that. So pytest
# in the background stops at SIGINT, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Other processes may take the cores, so no example has a limit of time.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _keep_denormals() -> Iterator[None]:
    """Jobs in a test flush denormal numbers. Switch this off for the next test."""
    import torch

    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A small token store, shared by all tests. Do not change it."""
    from small import make_store

    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnoses without plots on their pages. Plots take two thirds of the time of a small diagnosis."""
    monkeypatch.setattr("ssm.diagnosis.page.plots", lambda *_: [])
