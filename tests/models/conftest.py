from __future__ import annotations

from collections.abc import Iterator

import pytest
from ssm_kernels import use_backend


@pytest.fixture(scope="module")
def plain_backend() -> Iterator[None]:
    """The scans step by step, in the reference backend. Other backends have their own tests."""
    with use_backend("reference"):
        yield
