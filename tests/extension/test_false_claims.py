"""The intervals behind a claim are rarely wrong. `coverage.py` measures this on losses of real models."""

from __future__ import annotations

import numpy as np
import pytest
from extension.coverage import WORSE, Interval, false_claims, of_a_ratio, student, with_one_unseen

from ssm.specs.diagnosis import ENOUGH
from ssm.specs.extension import ENOUGH_FOR_A_GAIN

TRIALS, ALLOWED = 4000, 0.025
POOL = np.random.default_rng(3).lognormal(0.0, 0.3, 1024)  # nats of windows: skewed, as paired losses are


@pytest.mark.parametrize("worse", WORSE)
@pytest.mark.parametrize(
    ("interval", "windows"),
    [(with_one_unseen, 4), (with_one_unseen, ENOUGH_FOR_A_GAIN), (with_one_unseen, ENOUGH), (of_a_ratio, ENOUGH)],
)
def test_claims_are_rarely_wrong(worse: str, interval: Interval, windows: int) -> None:
    assert false_claims(WORSE[worse](POOL), windows, interval, TRIALS) < ALLOWED


@pytest.mark.parametrize("worse", ["tails", "rare"])
def test_student_intervals_are_wrong_more_often(worse: str) -> None:
    assert false_claims(WORSE[worse](POOL), ENOUGH_FOR_A_GAIN, student, TRIALS) > 2 * ALLOWED
