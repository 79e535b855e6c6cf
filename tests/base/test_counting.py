"""Numbers, durations and lists as text: the examples in their docstrings."""

from __future__ import annotations

import doctest

from ssm.base import counting


def test_examples() -> None:
    assert doctest.testmod(counting) == (0, 8)
