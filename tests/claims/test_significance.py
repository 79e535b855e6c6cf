"""P-values of verdicts, and the correction for the number of tests."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ssm.claims import claim, statements
from ssm.claims.claim import Expected
from ssm.claims.estimate import Reading, summarize
from ssm.claims.significance import p_value, surviving, weak_verdicts
from ssm.claims.statements import OPEN
from ssm.claims.verdict import decide

SAMPLES = np.random.default_rng(5).normal(0.4, 0.3, (40, 5))


def row(values: np.ndarray, logarithmic: bool = False) -> dict[str, Any]:
    readings = {seed: Reading(float(value)) for seed, value in enumerate(values)}
    found = summarize(readings, "", logarithmic, (-np.inf, np.inf))
    return {"estimate": found.value, "low": found.low, "high": found.high, "interval": found.interval}


def test_examples() -> None:
    assert all(doctest.testmod(module).failed == 0 for module in (statements, claim))
    assert doctest.testmod(statements).attempted >= 2


@pytest.mark.parametrize("logarithmic", [False, True])
def test_the_p_value_is_that_of_the_t_test(logarithmic: bool) -> None:
    for values in SAMPLES:
        bound = 0.1
        region = Expected(above=float(np.exp(bound)) if logarithmic else bound)
        expected = stats.ttest_1samp(values, bound).pvalue
        assert p_value(row(values, logarithmic), region) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("region", [Expected(above=0.2), Expected(below=0.3), Expected(above=0.1, below=0.8)])
def test_a_claim_is_decided_if_and_only_if_its_p_value_is_small(region: Expected) -> None:
    verdicts = []
    for values in SAMPLES:
        found = row(values)
        verdicts.append(decide(found["low"], found["high"], region)[0])
        assert (p_value(found, region) < 0.05) == (verdicts[-1] != OPEN)
    assert len(set(verdicts)) > 1, "both cases occur"


def test_a_clipped_end_does_not_matter_on_the_other_side() -> None:
    whole = {"estimate": 0.9, "low": 0.7, "high": 1.1, "interval": "95% Student t over 5 seeds"}
    clipped = whole | {"high": 1.0}
    assert p_value(clipped, Expected(above=0.8)) == p_value(whole, Expected(above=0.8))


def test_exact_and_missing_numbers_have_none() -> None:
    exact = {"estimate": 1.0, "low": 1.0, "high": 1.0, "interval": "exact"}
    missing = {"estimate": None, "low": None, "high": None, "interval": "none"}
    assert p_value(exact, Expected(above=0.5)) is p_value(missing, Expected(above=0.5)) is None


def test_the_correction_is_that_of_benjamini_and_hochberg() -> None:
    generator = np.random.default_rng(1)
    for count in (1, 3, 30, 200):
        found = generator.uniform(size=count) ** 3
        adjusted = stats.false_discovery_control(found) <= 0.05
        assert (found <= surviving(found)).tolist() == adjusted.tolist()
    assert surviving([]) == surviving([0.5]) == 0


def test_weak_verdicts_are_found_among_all_tests_of_a_paper() -> None:
    def one(target: str, name: str, p: float, **changes: Any) -> dict[str, Any]:
        verdict = OPEN if p > 0.05 else "confirmed"
        common = {"expected": "> 1", "number": name, "sort": "paper", "registered": True, "verdict": verdict}
        return common | {"target": target, "claim": name, "p": p} | changes

    rows = [one("lg_fig1", "a", 0.001), one("lg_fig1", "b", 0.04), one("lg_fig5", "c", 0.3), one("ls_fig2", "d", 0.04)]
    assert weak_verdicts(rows) == {("lg_fig1", "b")}, "ls has a single test, so d survives"
    assert weak_verdicts([*rows[:2], one("lg_fig5", "c", 0.3, registered=False)]) == set(), "c is no test"
    again = [one("lg_fig4", "e", 0.3, number="c")]
    assert weak_verdicts([*rows, *again]) == {("lg_fig1", "b")}, "the same test"
