from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def memory_of_nans() -> Iterator[None]:
    """torch.empty gives NaN instead of what was there."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
