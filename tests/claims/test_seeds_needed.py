"""How many seeds would decide a claim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from ssm.claims.bounded_mean import bounded_interval
from ssm.claims.claim import Expected
from ssm.claims.estimate import Reading, seed_interval, summarize
from ssm.claims.quantities.repaired_share import fieller_interval
from ssm.claims.seeds_needed import needed_words, seeds_needed
from ssm.claims.statements import CONFIRMED, ELSEWHERE, OPEN, PAPER
from ssm.claims.verdict import decide


def student(mean: float, deviation: float, seeds: int, expected: str) -> dict[str, Any]:
    """The row of an open verdict with a Student t interval."""
    half = float(special.stdtrit(seeds - 1, 0.975)) * deviation / math.sqrt(seeds)
    row = {"estimate": mean, "low": mean - half, "high": mean + half, "interval": f"95% Student t over {seeds} seeds"}
    return row | {"expected": expected, "verdict": OPEN, "sort": PAPER}


def test_the_number_is_that_of_a_t_test() -> None:
    """Half a standard deviation from the bound: 34 pairs, by tables of the power of a t test (5%, 80%)."""
    assert seeds_needed(student(0.5, 1.0, 5, "> 0")) == 34
    assert seeds_needed(student(0.5, 1.0, 12, "> 0")) == 34
    assert seeds_needed(student(2.5, 1.0, 5, "> 2")) == 34
    assert seeds_needed(student(0.5, 1.0, 5, "< 1")) == 34


def test_few_seeds_have_the_power_of_the_noncentral_t_distribution() -> None:
    """The power is .78 with six seeds and .87 with seven, and .61 with three and .89 with four."""
    assert seeds_needed(student(1.4, 1.0, 3, "> 0")) == 7
    assert seeds_needed(student(2.47, 1.0, 3, "> 0")) == 4  # scipy's function is NaN for 255 seeds


@pytest.mark.parametrize(
    ("mean", "expected"), [(0.6, "> 0"), (0.6, "< 0"), (1.5, "0 to 1"), (0.4, "0 to 1"), (0.5, "0 to 1")]
)
def test_so_many_seeds_decide_in_four_of_five_cases(mean: float, expected: str) -> None:
    needed = seeds_needed(student(mean, 0.8, 4, expected))
    assert needed is not None
    drawn = np.random.default_rng(0).normal(mean, 0.8, size=(2000, needed))
    verdicts = [decide(*seed_interval(values)[1:], Expected.of_words(expected))[0] for values in drawn]
    assert np.mean([verdict != OPEN for verdict in verdicts]) == pytest.approx(0.8, abs=0.05)


def test_ratios_are_read_on_their_scale() -> None:
    row = student(0.5, 1.0, 5, "> 1")
    row |= {name: math.exp(row[name]) for name in ("estimate", "low", "high")}
    assert seeds_needed(row | {"interval": "95% Student t over 5 seeds, of logarithms"}) == 34
    assert seeds_needed(row | {"interval": "95% Student t over 5 seeds, of logarithms; smallest of 3 steps"}) == 34


def test_an_interval_that_is_cut_at_a_limit_has_the_spread_of_its_other_side() -> None:
    row = student(0.5, 1.0, 5, "> 0")
    assert seeds_needed(row | {"low": -0.1}) == 34
    steps = {"interval": "95% Student t over 5 seeds; smallest of 3 steps"}
    assert seeds_needed(row | steps) == 34
    fewer = seeds_needed(row | steps | {"low": -0.1})  # such an interval has sides of its own
    assert fewer is not None
    assert fewer < 34


def test_a_pooled_share_needs_as_many_as_its_own_t_test() -> None:
    """Fieller's interval of few seeds is far longer on one side than those of many seeds will be."""
    before = [1.0, 1.5, 2.2, 0.9, 2.6]
    after = [0.5, 0.6, 0.6, 0.5, 0.9]
    low, high = fieller_interval(np.array(after), np.array(before)) or (0.0, 0.0)
    pairs = {seed: {"before": before[seed], "after": after[seed]} for seed in range(5)}
    row = {"estimate": 1 - sum(after) / sum(before), "low": 1 - high, "high": 1 - low, "expected": "> 0.57"}
    row |= {"interval": "95% Fieller over 5 seeds", "verdict": OPEN, "sort": PAPER, "by_seed": pairs}
    needed = seeds_needed(row)
    assert needed is not None
    random = np.random.default_rng(0)
    spread = np.cov(before, after)
    drawn = random.multivariate_normal([np.mean(before), np.mean(after)], spread, size=(2000, needed))
    ends = [fieller_interval(some[:, 1], some[:, 0]) for some in drawn]
    decided = [end is not None and (1 - end[1] > 0.57 or 1 - end[0] < 0.57) for end in ends]
    assert np.mean(decided) == pytest.approx(0.8, abs=0.03)
    assert seeds_needed(row | {"by_seed": {}}) is None, "nobody can repeat the test"


def gaffke(numbers: list[float], expected: str) -> dict[str, Any]:
    """The row of an open verdict with Gaffke's interval."""
    low, high = bounded_interval(np.array(numbers), (0.0, 1.0), 0.95)
    row = {"estimate": float(np.mean(numbers)), "low": low, "high": high, "expected": expected, "verdict": OPEN}
    method = f"95% Gaffke over {len(numbers)} seeds, possible values 0 to 1"
    return row | {"interval": method, "sort": PAPER, "by_seed": dict(enumerate(numbers))}


def test_seeds_that_agree_need_as_many_as_an_exact_test() -> None:
    """All of n seeds are right: the interval of Clopper and Pearson is above .9 from n = 36 on."""
    assert seeds_needed(gaffke([1.0] * 8, "> 0.9")) == 36
    assert seeds_needed(gaffke([0.0] * 8, "< 0.1")) == 36


def test_seeds_of_two_kinds_decide_in_four_of_five_cases() -> None:
    needed = seeds_needed(gaffke([0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0], "> 0.5"))
    assert needed is not None
    drawn = np.random.default_rng(0).random((400, needed)) < 0.75
    decided = [bounded_interval(values.astype(float), (0.0, 1.0), 0.95)[0] > 0.5 for values in drawn]
    assert np.mean(decided) == pytest.approx(0.8, abs=0.08)


def test_the_order_of_seeds_does_not_matter() -> None:
    numbers = [1.0] * 6 + [0.0] * 14
    found = {seeds_needed(gaffke(order, "< 0.5")) for order in (numbers, numbers[::-1], numbers[3:] + numbers[:3])}
    assert len(found) == 1
    (needed,) = found
    assert needed is not None
    drawn = np.random.default_rng(0).random((400, needed)) < 0.3
    decided = [bounded_interval(values.astype(float), (0.0, 1.0), 0.95)[1] < 0.5 for values in drawn]
    assert np.mean(decided) == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(("solved", "seeds", "bound", "needed"), [(2, 5, 0.7, 27), (3, 7, 0.8, 17), (1, 5, 0.5, 23)])
def test_a_count_that_is_no_multiple_of_the_seeds_has_their_mean(
    solved: int, seeds: int, bound: float, needed: int
) -> None:
    """One seed fewer would not be enough, although its share of solved seeds is rounded down."""
    assert seeds_needed(gaffke([1.0] * solved + [0.0] * (seeds - solved), f"< {bound}")) == needed


@pytest.mark.parametrize(("number", "region"), [(0.25, "< 1"), (4.0, "> 1")])
def test_an_interval_of_logarithms_is_read_on_its_scale(number: float, region: str) -> None:
    """Eight seeds that agree decide it, and six do not."""
    readings = {seed: Reading(math.log(number)) for seed in range(8)}
    expected = Expected.of_words(region)
    verdicts = []
    for seeds in (6, 7, 8):
        some = {seed: readings[seed] for seed in range(seeds)}
        found = summarize(some, "", logarithmic=True, limits=(1 / 8, 8.0), agreeing=True)
        verdicts.append(decide(found.low, found.high, expected)[0])
        if seeds == 6:
            row = {"low": found.low, "high": found.high, "interval": found.interval.words(), "by_seed": found.by_seed}
            row |= {"estimate": found.value, "expected": region, "verdict": OPEN, "sort": PAPER}
    assert verdicts == [OPEN, OPEN, CONFIRMED]
    assert seeds_needed(row) == 8


@pytest.mark.parametrize(
    "other",
    [
        {"verdict": CONFIRMED},
        {"sort": ELSEWHERE},
        {"estimate": None, "low": None, "high": None, "interval": "none"},
        {"interval": "95% bootstrap over 64 sequences of one seed"},
        {"low": -math.inf},
        {"low": 0.0, "interval": "95% Student t over 5 seeds, of logarithms"},
        {"interval": "95% Student t over 1 seeds"},
        {"expected": "> -9"},  # open for another reason than its interval
    ],
)
def test_without_an_open_interval_over_seeds_nobody_can_say(other: dict[str, Any]) -> None:
    row = student(0.5, 1.0, 5, "> 0.4") | other
    assert seeds_needed(row) is None
    assert needed_words(row) == ""


def test_a_number_at_the_bound_needs_too_many() -> None:
    assert needed_words(student(0.0, 1.0, 5, "> 0")) == "more than 1,000 new seeds would decide it"
    assert needed_words(student(0.5, 1.0, 5, "> 0")) == "about 34 new seeds would decide it"
