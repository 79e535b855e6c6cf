from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import pytest
import torch
from small import make_store

from ssm.data.store import TokenStore

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before -m is heeded
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `pairwise`: cases until any two values of two parameters have met. The others are exhaustive."""
    tests: defaultdict[str, dict[pytest.Item, set[object]]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("pairwise") is not None:
            values = sorted((name, repr(value)) for name, value in item.callspec.params.items())  # type: ignore[attr-defined]
            tests[item.nodeid.partition("[")[0]][item] = set(combinations(values, 2))
    for pairs in tests.values():
        while any(pairs.values()):
            met = pairs.pop(max(pairs, key=lambda item: len(pairs[item])))
            pairs = {item: found - met for item, found in pairs.items()}
        for item in pairs:
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(autouse=True)
def _keep_denormals() -> Iterator[None]:
    """Jobs flush denormal numbers in their process; the next test has them again."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A small token store, shared by the tests of a session, which only read it."""
    return make_store(tmp_path_factory.mktemp("store"))
