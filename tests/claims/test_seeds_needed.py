"""How many seeds would decide a claim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from ssm.claims.claim import Expected
from ssm.claims.estimate import seed_interval
from ssm.claims.seeds_needed import needed_words, seeds_needed
from ssm.claims.statements import CONFIRMED, ELSEWHERE, OPEN, PAPER
from ssm.claims.verdict import decide


def student(mean: float, deviation: float, seeds: int, expected: str, **other: Any) -> dict[str, Any]:
    """The row of an open verdict with a Student t interval."""
    half = float(special.stdtrit(seeds - 1, 0.975)) * deviation / math.sqrt(seeds)
    row = {"estimate": mean, "low": mean - half, "high": mean + half, "interval": f"95% Student t over {seeds} seeds"}
    return row | {"expected": expected, "verdict": OPEN, "sort": PAPER} | other


def test_the_number_is_that_of_a_t_test() -> None:
    """Half a standard deviation from the bound: 34 pairs, by tables of the power of a t test (5%, 80%)."""
    assert seeds_needed(student(0.5, 1.0, 5, "> 0")) == 34
    assert seeds_needed(student(0.5, 1.0, 12, "> 0")) == 34
    assert seeds_needed(student(2.5, 1.0, 5, "> 2")) == 34
    assert seeds_needed(student(0.5, 1.0, 5, "< 1")) == 34


@pytest.mark.parametrize(("mean", "expected"), [(0.6, "> 0"), (0.6, "< 0"), (1.5, "0 to 1"), (0.4, "0 to 1")])
def test_so_many_seeds_decide_in_four_of_five_cases(mean: float, expected: str) -> None:
    needed = seeds_needed(student(mean, 0.8, 4, expected))
    assert needed is not None
    drawn = np.random.default_rng(0).normal(mean, 0.8, size=(2000, needed))
    verdicts = [decide(*seed_interval(values)[1:], Expected.of_words(expected))[0] for values in drawn]
    assert np.mean([verdict != OPEN for verdict in verdicts]) == pytest.approx(0.8, abs=0.05)


def test_ratios_are_read_on_their_scale() -> None:
    row = student(0.5, 1.0, 5, "> 1", interval="95% Student t over 5 seeds, of logarithms")
    row |= {name: math.exp(row[name]) for name in ("estimate", "low", "high")}
    assert seeds_needed(row) == 34


def test_an_interval_that_is_cut_at_a_limit_has_the_spread_of_its_other_side() -> None:
    row = student(0.5, 1.0, 5, "> 0")
    assert seeds_needed(row | {"low": -0.1}) == 34
    gaffke = {"interval": "95% Gaffke over 5 seeds, possible values -1 to 1"}
    assert seeds_needed(row | gaffke) == 34
    fewer = seeds_needed(row | gaffke | {"low": -0.1})  # such an interval has sides of its own
    assert fewer is not None
    assert fewer < 34


@pytest.mark.parametrize(
    "other",
    [
        {"verdict": CONFIRMED},
        {"sort": ELSEWHERE},
        {"estimate": None, "low": None, "high": None, "interval": "none"},
        {"interval": "95% bootstrap over 64 sequences of one seed"},
        {"low": -math.inf},
        {"low": 0.0, "interval": "95% Student t over 5 seeds, of logarithms"},
    ],
)
def test_without_an_open_interval_over_seeds_nobody_can_say(other: dict[str, Any]) -> None:
    row = student(0.5, 1.0, 5, "> 0.4", **other)
    assert seeds_needed(row) is None
    assert needed_words(row) == ""


def test_a_number_at_the_bound_needs_too_many() -> None:
    assert needed_words(student(0.0, 1.0, 5, "> 0")) == "more than 1,000 seeds"
    assert needed_words(student(0.5, 1.0, 5, "> 0")) == "about 34 seeds"
