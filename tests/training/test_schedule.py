"""Learning rate and weight decay by step, compared with values computed by hand (lg App. B.1)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ssm.specs.training import Budget, TrainingSpec
from ssm.training.schedule import learning_rate, warmup_steps, weight_decay

PEAK = 1e-3


def spec(**changes: Any) -> TrainingSpec:
    return TrainingSpec(context=8, batch_tokens=8, budget=Budget(steps=1), **changes)


def test_cosine_with_ten_percent_of_warm_up() -> None:
    rates = [learning_rate(spec(), PEAK, step, 100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([PEAK * step / 10 for step in range(1, 11)])  # 1e-4, 2e-4, ... 1e-3
    assert max(rates) == rates[9] == PEAK
    assert rates[54] == pytest.approx((PEAK + 1e-5) / 2)  # step 55 is half way from 10 to 100
    assert rates[24] == pytest.approx(1e-5 + (PEAK - 1e-5) * 0.5 * (1 + math.cos(math.pi / 6)))  # a sixth of the way
    assert rates[99] == pytest.approx(1e-5, rel=1e-12)
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_constant_stays_at_the_peak() -> None:
    rates = [learning_rate(spec(schedule="constant", warmup=10), PEAK, step, 200) for step in range(1, 201)]
    assert rates[:3] == pytest.approx([1e-4, 2e-4, 3e-4])
    assert set(rates[9:]) == {PEAK}


@pytest.mark.parametrize(
    ("warmup", "steps", "expected"),
    [(0.1, 3000, 300), (0.25, 100, 25), (0.1, 4, 1), (0.0, 100, 1), (1.0, 100, 1), (10, 200, 10), (0.999, 1000, 999)],
)
def test_warmup_is_a_fraction_below_one_and_steps_from_one(warmup: float, steps: int, expected: int) -> None:
    assert warmup_steps(spec(warmup=warmup), steps) == expected


def test_a_single_step_trains_at_the_peak() -> None:
    assert learning_rate(spec(), PEAK, 1, 1) == PEAK


def test_a_warmup_longer_than_the_run_never_falls() -> None:
    assert [learning_rate(spec(warmup=8), PEAK, step, 4) for step in (1, 4)] == [PEAK / 8, PEAK / 2]


def test_the_cosine_never_rises() -> None:
    """A peak below min_lr stays constant. Post-training at a tenth of the rate can have such a peak."""
    assert {learning_rate(spec(min_lr=1e-5), 1e-6, step, 100) for step in range(10, 101)} == {1e-6}


def test_weight_decay_follows_the_rate_or_stays() -> None:
    with_lr, constant = spec(), spec(weight_decay_schedule="constant")
    assert weight_decay(with_lr, PEAK, PEAK) == 0.01
    assert weight_decay(with_lr, PEAK / 4, PEAK) == pytest.approx(0.0025)
    assert weight_decay(constant, PEAK / 4, PEAK) == 0.01


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        (Budget(steps=7), 7),
        (Budget(tokens=5_000), 5),
        (Budget(tokens=1), 1),
        (Budget(chinchilla=2.5), 150),  # 2.5 * 20 tokens * 3000 parameters / 1000 tokens a batch
    ],
)
def test_budgets_in_steps_tokens_and_chinchilla(budget: Budget, steps: int) -> None:
    assert budget.optimizer_steps(batch_tokens=1_000, parameters=3_000) == steps
