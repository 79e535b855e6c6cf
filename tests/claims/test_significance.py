"""P-values of verdicts, and the correction for the number of tests."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ssm.claims import claim, statements
from ssm.claims.claim import Expected
from ssm.claims.estimate import Estimate, Reading, summarize
from ssm.claims.method import EXACT, Method
from ssm.claims.significance import p_value, surviving, weak_verdicts
from ssm.claims.statements import CONFIRMED, OPEN
from ssm.claims.tails import smallest_tails, student_tails
from ssm.claims.verdict import decide

SAMPLES = np.random.default_rng(5).normal(0.4, 0.3, (40, 5))
TWENTY = np.random.default_rng(6).normal(0.4, 0.3, (20, 20)).clip(0, 1)


def found(values: np.ndarray, logarithmic: bool = False, **more: Any) -> Estimate:
    readings = {seed: Reading(float(value)) for seed, value in enumerate(values)}
    return summarize(readings, "", logarithmic, more.pop("limits", (-np.inf, np.inf)), **more)


def test_examples() -> None:
    assert all(doctest.testmod(module).failed == 0 for module in (statements, claim))
    assert doctest.testmod(statements).attempted >= 2


@pytest.mark.parametrize("logarithmic", [False, True])
def test_the_p_value_is_that_of_the_t_test(logarithmic: bool) -> None:
    for values in SAMPLES:
        bound = 0.1
        region = Expected(above=float(np.exp(bound)) if logarithmic else bound)
        expected = stats.ttest_1samp(values, bound).pvalue
        one = found(values, logarithmic)
        assert p_value(one, region, CONFIRMED) == pytest.approx(expected, rel=1e-9)
    assert p_value(found(SAMPLES[0], logarithmic=True), Expected(above=0.0), CONFIRMED) == 0, "no ratio is negative"


def test_the_p_value_of_a_share_is_that_of_the_binomial_test() -> None:
    for solved in (6, 8, 10):
        values = np.repeat([1.0, 0.0], [solved, 10 - solved])
        one = found(values, limits=(0.0, 1.0), two_kinds=True)
        sides = [stats.binomtest(solved, 10, 0.4, alternative=side).pvalue for side in ("greater", "less")]
        got = p_value(one, Expected(above=0.4), CONFIRMED)
        assert got == pytest.approx(min(1.0, 2 * min(sides)), rel=1e-6)
    alike = found(np.ones(4), limits=(0.0, 1.0), two_kinds=True)
    assert p_value(alike, Expected(below=1.0), CONFIRMED) == 1.0, "the limit itself is never excluded"


def test_the_p_value_of_a_bootstrap_is_a_share_of_its_draws() -> None:
    draws = np.random.default_rng(3).exponential(size=2000)
    one = summarize({1: Reading(1.0, draws=draws, sequences=9)}, "", logarithmic=False, limits=(-np.inf, np.inf))
    bound = float(np.quantile(draws, 0.01))
    assert p_value(one, Expected(above=bound), CONFIRMED) == pytest.approx(0.02)
    assert p_value(one, Expected(above=-1.0), CONFIRMED) == pytest.approx(2 / 2000), "not less than one draw"
    for bound in np.quantile(draws, [0.02, 0.0249, 0.0251, 0.5, 0.9749, 0.9751]).tolist():
        decided = decide(one.low, one.high, Expected(above=bound))[0] != OPEN
        assert ((p_value(one, Expected(above=bound), CONFIRMED) or 0.0) < 0.05) == decided


@pytest.mark.parametrize("region", [Expected(above=0.25), Expected(below=0.35), Expected(above=0.15, below=0.6)])
@pytest.mark.parametrize(
    ("samples", "more"), [(SAMPLES, {}), (TWENTY, {"two_kinds": True, "limits": (0.0, 1.0)})], ids=["t", "Gaffke"]
)
def test_a_claim_is_decided_if_and_only_if_its_p_value_is_small(
    region: Expected, samples: np.ndarray, more: dict[str, Any]
) -> None:
    decided = []
    for values in samples:
        one = found(values, **more)
        p = p_value(one, region, CONFIRMED)
        assert p is not None
        decided.append(decide(one.low, one.high, region)[0] != OPEN)
        assert (p < 0.05) == decided[-1]
    assert set(decided) == {True, False}, "both cases occur"


def test_the_p_value_of_the_smallest_step_agrees_with_its_interval() -> None:
    """All steps must be above the bound; or one is below it, among three."""
    steps = np.random.default_rng(2).normal([0.1, 0.4, 0.8], 0.3, (6, 3))
    each = [student_tails(lambda bound, step=step: step - bound) for step in steps.T]
    tails = smallest_tails(each)
    assert tails.at_most(-0.5) == max(one.at_most(-0.5) for one in each)
    assert tails.at_least(0.5) == pytest.approx(3 * stats.ttest_1samp(steps[:, 0], 0.5, alternative="less").pvalue)


def test_a_claim_that_a_limit_leaves_open_has_no_small_p_value() -> None:
    """The interval of a number that cannot be below 0 ends at 0."""
    one = found(np.array([0.01, 0.02, 0.03]), limits=(0.0, 1.0))
    assert p_value(one, Expected(above=-0.1), OPEN) == pytest.approx(0.05)


def test_an_interval_of_no_length_has_a_p_value() -> None:
    """Of 2,000 resamples, 1,960 have the number 0. So both ends of the 95% interval are 0."""
    one = summarize(
        {1: Reading(0.0, draws=np.repeat([0.0, 1.0], [1960, 40]), sequences=9)}, "", False, (-np.inf, np.inf)
    )
    assert one.low == one.high == 0
    assert decide(one.low, one.high, Expected(below=0.5))[0] == CONFIRMED
    assert p_value(one, Expected(below=0.5), CONFIRMED) == pytest.approx(2 * 40 / 2000, abs=1 / 2000)


def test_exact_numbers_have_none() -> None:
    assert p_value(Estimate(1.0, 1.0, 1.0, Method(EXACT), ""), Expected(above=0.5), CONFIRMED) is None


def test_the_correction_is_that_of_benjamini_and_hochberg() -> None:
    generator = np.random.default_rng(1)
    for count in (1, 3, 30, 200):
        values = generator.uniform(size=count) ** 3
        adjusted = stats.false_discovery_control(values) <= 0.05
        assert (values <= surviving(values)).tolist() == adjusted.tolist()
    assert surviving([]) == surviving([0.5]) == 0


def test_weak_verdicts_are_found_among_all_tests_of_a_paper() -> None:
    def one(target: str, name: str, p: float, **changes: Any) -> dict[str, Any]:
        verdict = OPEN if p > 0.05 else "confirmed"
        common = {"expected": "> 1", "number": name, "sort": "paper", "registered": True, "verdict": verdict}
        return common | {"target": target, "claim": name, "p": p} | changes

    rows = [one("lg_fig1", "a", 0.001), one("lg_fig1", "b", 0.04), one("lg_fig5", "c", 0.3), one("ls_fig2", "d", 0.04)]
    assert weak_verdicts(rows) == {("lg_fig1", "b")}, "ls has a single test, so d survives"
    assert weak_verdicts([*rows[:2], one("lg_fig5", "c", 0.3, registered=False)]) == set(), "c is no test"
    assert weak_verdicts([*rows[:2], one("lg_fig5", "c", 0.3) | {"p": None}]) == set(), "an exact number is no test"
    again = [one("lg_fig4", "e", 0.3, number="c")]
    assert weak_verdicts([*rows, *again]) == {("lg_fig1", "b")}, "the same test"
    again = [one("lg_fig4", "e", 0.3, number="a", expected="> 2")]
    assert weak_verdicts([*rows, *again]) == {("lg_fig1", "b")}, "another region: another test"
