"""Seeds of two kinds: some solve the task, others do not. `coverage.py` measures more of their intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from claims.coverage import coverage, gaffke, student
from claims.synthetic import claim, estimate, figure_task, same, write_tables
from scipy import stats

from ssm.base.errors import ConfigError
from ssm.base.tables import write_table
from ssm.claims.bounded_mean import bounded_interval, share_below
from ssm.claims.claim import ClaimSpec
from ssm.claims.estimate import LEVEL, Estimate, Reading, UndecidableError, summarize
from ssm.claims.statements import CONFIRMED, OPEN, REFUTED
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask
from ssm.specs.measurements.learning_curve import LearningCurve

ALLOWED = LEVEL - 0.03
UNIT = (0.0, 1.0)
SOLVED_SHARE = {"kind": "solved_share", "measurement": "length_class", "column": "excess", "level": 0.75}
MEAN = {"kind": "value_at", "measurement": "length_class", "column": "excess", "limits": [0, 1], "two_kinds": True}
STEPS = {"kind": "steps_to_solve", "level": 0.75, "within": 100}


def exact(successes: int, trials: int) -> tuple[float, float]:
    """The interval of Clopper and Pearson, from scipy."""
    found = stats.binomtest(successes, trials).proportion_ci(method="exact")
    return found.low, found.high


def shares(task: dict[str, Any], folder: Path, base: list[float], passed: list[float]) -> tuple[Estimate, str]:
    """The estimate and the interval's method of a quantity of the excess of two arms, with one number for each seed."""
    named = task if "sweep" in task else task | {"arm": "base"}
    planned = figure_task([claim(named, above=0.5)], tuple(range(len(base))))
    arms = (("base", base), ("passed", passed))
    readings = {(arm, seed): {"excess": one} for arm, values in arms for seed, one in enumerate(values)}
    write_tables(folder, planned, readings)
    found = estimate(planned, "tiny", planned.figure.claims[0].quantity, folder)
    return found, found.interval.words()


def curves(folder: Path, content: dict[str, Any], *accuracies: Sequence[float | None]) -> FigureTask:
    """A figure with the learning curves of base, one for each seed, with a row for 20 steps. NaN: diverged."""
    below = 0.5 if content.get("sooner") else 50
    planned = figure_task([claim(STEPS | {"arm": "base"} | content, below=below)], tuple(range(len(accuracies))))
    series = []
    for one in planned.series:
        name = f"learning-curve_{one.arm}_s{one.seed}"
        series.append(one.model_copy(update={"tables": {"learning_curve": name}}))
        accuracy = accuracies[one.seed] if one.arm == "base" else [0.0] * 5
        steps = 20 * np.arange(1, len(accuracy) + 1)
        loss = [math.nan if value is not None and math.isnan(value) else 1.0 for value in accuracy]
        rows = {"step": steps, "tokens": steps, "loss": loss, "accuracy": accuracy}
        table = pl.DataFrame(rows, schema=LearningCurve.table.columns)
        write_table(table, LearningCurve.table, folder / f"{name}.parquet", {"written": "2025-01-01T00:00:00+00:00"})
    return planned.model_copy(update={"series": tuple(series)})


def steps(folder: Path, *accuracies: Sequence[float | None], **content: Any) -> Estimate:
    planned = curves(folder, content, *accuracies)
    return estimate(planned, "tiny", planned.figure.claims[0].quantity, folder)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 200])
def test_shares_have_the_interval_of_clopper_and_pearson(count: int) -> None:
    for successes in {0, 1, count // 3, count}:
        values = np.arange(count) < successes
        expected = exact(successes, count)
        assert bounded_interval(values.astype(float), UNIT, LEVEL) == pytest.approx(expected, abs=1e-11)
        low, high = bounded_interval(values * 0.25 - 2, (-2.0, -1.75), LEVEL)
        assert (low, high) == pytest.approx([0.25 * end - 2 for end in expected], abs=1e-11)


def test_paired_shares_differ_if_mcnemars_exact_test_says_so() -> None:
    for more, fewer in itertools.product(range(11), range(5)):
        values = np.repeat([1.0, -1.0, 0.0], (more, fewer, 4))
        low, high = bounded_interval(values, (-1.0, 1.0), LEVEL)
        pvalue = stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
        assert (low > 0 or high < 0) == (pvalue < 1 - LEVEL), (more, fewer)


def test_ends_are_quantiles_of_means_with_random_weights() -> None:
    values = np.array([0.1, 0.45, 0.5, 0.97, 0.98])
    weights = np.random.default_rng(3).dirichlet(np.ones(6), 200_000)
    means = [weights @ np.append(values, limit) for limit in UNIT]
    low, high = bounded_interval(values, UNIT, LEVEL)
    assert (low, high) == pytest.approx((np.quantile(means[0], 0.025), np.quantile(means[1], 0.975)), abs=3e-3)
    assert share_below(values, 0.0, low) == pytest.approx(0.025, abs=1e-9)
    assert share_below(values, 0.0, 0.4) == pytest.approx((means[0] < 0.4).mean(), abs=5e-3)


@pytest.mark.parametrize("places", [(0.0, 1.0), (0.46, 0.97), (0.0, 0.3), (0.9, 1.0)])
def test_intervals_of_two_values_cover_the_mean_exactly(places: tuple[float, float]) -> None:
    for count in (3, 5, 8, 20):
        found = [gaffke((places[0],) * (count - more) + (places[1],) * more, UNIT) for more in range(count + 1)]
        for share in (0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99):
            mean = (1 - share) * places[0] + share * places[1]
            inside = [low <= mean <= high for low, high in found]
            assert stats.binom.pmf(range(count + 1), count, share) @ inside > LEVEL


@pytest.mark.parametrize("kind", ["mean of right answers", "steps"])
@pytest.mark.parametrize("paired", [False, True])
def test_intervals_cover_in_simulations(kind: str, paired: bool) -> None:
    for count, share in itertools.product((3, 20), (0.2, 0.8)):
        assert coverage(gaffke, kind, paired, share, count, trials=100) > ALLOWED


def test_student_intervals_do_not() -> None:
    assert coverage(student, "mean of right answers", False, 0.2, 3, trials=400) < 0.6
    assert coverage(student, "mean of right answers", False, 0.8, 5, trials=400) < 0.75
    assert coverage(student, "steps", False, 0.5, 8, trials=400) < ALLOWED


def test_the_share_of_seeds_that_solve_a_task(tmp_path: Path) -> None:
    base, passed = [0.75, 0.97, 0.46, 0.98, 0.7], [0.1, 0.97, 0.97, 0.2, 0.3]
    found, method = shares(SOLVED_SHARE, tmp_path, base, passed)
    same(found, (3 / 5, *exact(3, 5)))
    assert method == "95% Gaffke over 5 seeds, possible values 0 to 1"
    assert found.words == "share of seeds of base <b>& with a mean excess of at least 0.75 in length_class"
    found, method = shares(SOLVED_SHARE | {"against": "passed"}, tmp_path, base, passed)
    same(found, (1 / 5, *bounded_interval(np.array([1.0, 0.0, -1.0, 1.0, 0.0]), (-1.0, 1.0), LEVEL)))
    assert method == "95% Gaffke over 5 seeds, possible values -1 to 1"
    with pytest.raises(UndecidableError, match="no finite number for seed 1"):
        shares(SOLVED_SHARE, tmp_path, [0.8, math.nan], [0.0, 0.0])


def test_a_share_flips_its_verdict(tmp_path: Path) -> None:
    for solved, verdict in ((8, CONFIRMED), (0, REFUTED), (4, OPEN)):
        planned = figure_task([claim(SOLVED_SHARE | {"arm": "base"}, above=0.5)], tuple(range(8)))
        write_tables(tmp_path, planned, {("base", seed): {"excess": float(seed < solved)} for seed in range(8)})
        assert judge(planned, tmp_path)["verdict"].to_list() == [verdict]


def test_one_seed_shows_little_of_the_others(tmp_path: Path) -> None:
    for quantity in (SOLVED_SHARE, MEAN):
        same(shares(quantity, tmp_path, [1.0], [0.0])[0], (1.0, 0.025, 1.0))


@pytest.mark.parametrize("ratio", [0.125, 8.0, 0.3, 1 / 0.3])
def test_an_interval_of_ratios_ends_at_their_limits(ratio: float) -> None:
    """exp(log(ratio)) differs from .125 and 8 by rounding."""
    limits = (min(ratio, 1 / ratio), max(ratio, 1 / ratio))
    readings = {seed: Reading(math.log(ratio)) for seed in range(4)}
    found = summarize(readings, "", logarithmic=True, limits=limits, agreeing=True)
    assert (found.low if ratio < 1 else found.high) == ratio
    assert limits[0] <= found.low < found.high <= limits[1]
    assert limits[0] <= found.value <= limits[1]


@pytest.mark.parametrize("two_kinds", [False, True])
def test_numbers_outside_their_limits_decide_nothing(two_kinds: bool) -> None:
    """Such as shares in percent, between 0 and 1."""
    readings = {seed: Reading(value) for seed, value in enumerate([0.5, 45.0, 1.0 + 1e-9, -3.0, 1.0 + 1e-5])}
    with pytest.raises(UndecidableError, match="a number outside its limits for seed 1, 3, 4: expected 0 to 1"):
        summarize(readings, "", logarithmic=False, limits=UNIT, two_kinds=two_kinds)


def test_means_of_two_kinds_assume_the_limits_alone(tmp_path: Path) -> None:
    base, passed = [0.97, 0.46, 0.46, 0.95], [0.46, 0.46, 0.45, 0.46]
    found, _ = shares(MEAN, tmp_path, base, passed)
    same(found, (np.mean(base), *bounded_interval(np.array(base), UNIT, LEVEL)))
    found, method = shares(MEAN | {"against": "passed"}, tmp_path, base, passed)
    difference = np.array(base) - passed
    same(found, (difference.mean(), *bounded_interval(difference, (-1.0, 1.0), LEVEL)))
    assert method == "95% Gaffke over 4 seeds, possible values -1 to 1"
    area = {"kind": "area", "sweep": {"of": SOLVED_SHARE, "arms": ["base", "passed"], "at": [1, 3]}}
    found, _ = shares(area | {"limits": [0, 1], "two_kinds": True}, tmp_path, base, passed)
    same(found, (1 / 4, *bounded_interval(np.array([0.5, 0.0, 0.0, 0.5]), UNIT, LEVEL)))


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        (MEAN | {"arm": "base", "limits": None}, "'two_kinds' needs 'limits'"),
        (MEAN | {"arm": "base", "against": "passed", "scale": "ratio"}, "compares arms by their difference"),
        ({"kind": "area", "sweep": {"of": MEAN, "over": "d_state"}}, "two_kinds: leave it out of"),
    ],
)
def test_two_kinds_where_they_cannot_be_are_refused(quantity: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClaimSpec.parse(claim(quantity, above=0.5), "test")


def test_quantities_without_two_kinds_keep_their_hash() -> None:
    plain = {key: value for key, value in MEAN.items() if key != "two_kinds"}
    for quantity, given in (
        (plain | {"arm": "base"}, True),
        ({"kind": "area", "sweep": {"of": plain, "over": "d"}}, False),
    ):
        content = ClaimSpec.parse(claim(quantity, above=0.5), "test").quantity.content()
        assert ("two_kinds" in content, "limits" in content) == (False, given)


def test_steps_until_a_task_is_solved(tmp_path: Path) -> None:
    """The first row at the level counts, and 100 steps if there is none."""
    sooner, later, never = [0.1, 0.75, 0.2, 0.9, 0.9], [0.1, 0.2, 0.3, 0.7, 0.8], [0.1, 0.2, 0.7, 0.7, 0.7]
    diverged = [0.1, 0.2, math.nan]
    found = steps(tmp_path, sooner, later, never, diverged)
    same(found, ((40 + 100 + 100 + 100) / 4, *bounded_interval(np.array([40.0, 100, 100, 100]), (0.0, 100.0), LEVEL)))
    assert found.interval.words() == "95% Gaffke over 4 seeds, possible values 0 to 100"
    assert found.words == "steps until the accuracy of base <b>& in training reaches 0.75, at most 100"
    assert steps(tmp_path, sooner, later, never, diverged, within=60).value == (40 + 3 * 60) / 4
    assert steps(tmp_path, sooner, [0.9, math.nan], against="passed").value == (40 + 20) / 2 - 100


def test_which_arm_is_sooner_is_counted(tmp_path: Path) -> None:
    """Base is later than the other arm, which is never solved, in no seed; in one they are equal."""
    sooner, never = [0.1, 0.75, 0.2, 0.9, 0.9], [0.1, 0.2, 0.7, 0.7, 0.7]
    found = steps(tmp_path, sooner, never, [0.8] * 5, against="passed", sooner=True)
    same(found, (2 / 3, *bounded_interval(np.array([1.0, 0.0, 1.0]), (-1.0, 1.0), LEVEL)))
    assert found.words == (
        "share of seeds with fewer steps until the accuracy of base <b>& in training reaches 0.75, at most 100, "
        "than State Passing; minus the share with more"
    )
    assert steps(tmp_path, *[never] * 3, against="base", arm="passed", sooner=True).value == 0
    assert steps(tmp_path, *[sooner] * 3, against="base", arm="passed", sooner=True).value == -1
    with pytest.raises(ConfigError, match="'sooner' needs 'against'"):
        steps(tmp_path, sooner, sooner=True)


def test_steps_flip_their_verdict(tmp_path: Path) -> None:
    soon, never = [0.8] * 5, [0.0] * 5
    for early, verdict in ((8, CONFIRMED), (0, REFUTED), (4, OPEN)):
        planned = curves(tmp_path, {}, *([soon] * early + [never] * (8 - early)))
        assert judge(planned, tmp_path)["verdict"].to_list() == [verdict]


def test_curves_that_do_not_tell_when_a_task_is_solved(tmp_path: Path) -> None:
    with pytest.raises(UndecidableError, match="'base' is trained for 60 steps at this scale; 100 are needed"):
        steps(tmp_path, [0.1, 0.2, 0.3])
    with pytest.raises(UndecidableError, match="has no accuracy; only tasks have one"):
        steps(tmp_path, [None] * 5)
