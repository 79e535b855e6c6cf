"""The comparison of results detects values that are not finite."""

from __future__ import annotations

import math

import pytest
import torch
from kernels.numerics import error, worst


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_errors_of_values_that_are_not_finite_are_infinite(wrong: float) -> None:
    good, bad = torch.ones(3), torch.tensor([1.0, wrong, 1.0])
    assert error(bad, good) == error(good, bad) == math.inf
    for place in range(3):
        got = [good] * 3
        got[place] = bad
        assert worst(got, [good] * 3) == math.inf
