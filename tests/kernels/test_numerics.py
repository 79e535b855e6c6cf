"""The comparison that the tests of kernels rest on sees what is not a number."""

from __future__ import annotations

import math

import pytest
import torch
from kernels.numerics import error, worst


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_infinitely_wrong_wherever_it_stands(wrong: float) -> None:
    good, bad = torch.ones(3), torch.tensor([1.0, wrong, 1.0])
    assert error(bad, good) == error(good, bad) == math.inf
    for place in range(3):
        got = [good] * 3
        got[place] = bad
        assert worst(got, [good] * 3) == math.inf
