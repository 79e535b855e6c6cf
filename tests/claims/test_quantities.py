"""Quantities compared with values computed by hand, over seeds and over the sequences of one seed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from claims.synthetic import AT, Readings, claim, estimate, figure_task, same, student, write_tables
from scipy import stats

from ssm.base.errors import ConfigError, TableError
from ssm.base.tables import read_table, write_table
from ssm.claims.estimate import Estimate, UndecidableError, log_mean_reading
from ssm.claims.method import SEQUENCES, STUDENT, Method
from ssm.claims.quantities.effect import Effect
from ssm.claims.quantities.own_table import OwnTable
from ssm.claims.quantities.restart_ratio import RestartRatio
from ssm.claims.quantities.value_at import ValueAt
from ssm.claims.quantity import ROUNDING
from ssm.claims.statements import CONFIRMED, OPEN, REFUTED
from ssm.claims.verdict import judge
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.state_statistics import StateStatistics

SHIFTS = (0.2, 0.5, 0.3)  # log ratios of the three seeds
OVERFLOWED: Readings = {("base", 2): {"norm": [1.0, math.inf, 1.0, 1.0]}}
HUGE: Readings = {("base", 2): {"norm": [5e307] * 4}}  # finite, with an infinite sum
BOTH_INFINITE: Readings = {(arm, 1): {"late": [math.inf] * 4} for arm in ("base", "passed")}
GROWTH = {"kind": "state_norm_growth", "arm": "base", "times_context": 4.0}
REMEMBRANCE = {"kind": "remembrance", "arm": "base"}
FORGETS: Readings = {("base", seed): {"remembrance": 0.0} for seed in (1, 2, 3)}


def measure(
    folder: Path, quantity: dict[str, Any], readings: Readings, seeds: tuple[int, ...] = (1, 2, 3), sequences: int = 4
) -> Estimate:
    task = figure_task([claim(quantity, above=0.001)], seeds)
    write_tables(folder, task, readings, sequences)
    return estimate(task, "tiny", task.figure.claims[0].quantity, folder)


@pytest.mark.parametrize(
    ("quantity", "key", "of"),
    [
        ({"kind": "restart_ratio", "arm": "base", "times_context": 4.0}, "late", lambda x: 2.0 + x),
        ({"kind": "perplexity_growth", "arm": "base", "times_context": 2.0}, "late", lambda x: 2.0 + x),
        (AT, "late", lambda x: x),
        ({"kind": "state_norm_growth", "arm": "base", "times_context": 4.0}, "norm", np.exp),
    ],
)
def test_ratios_are_averaged_in_log_space_over_seeds(tmp_path: Path, quantity: Any, key: str, of: Any) -> None:
    readings = {("base", seed): {key: float(of(shift))} for seed, shift in enumerate(SHIFTS, 1)}
    found = measure(tmp_path, quantity, readings)
    same(found, np.exp(student(SHIFTS)))
    assert found.interval.words() == "95% Student t over 3 seeds, of logarithms"
    assert found.by_seed == pytest.approx(dict(enumerate(np.exp(SHIFTS), 1)))


@pytest.mark.parametrize("kind", ["perplexity_at", "perplexity_growth", "restart_ratio"])
def test_against_another_arm_is_paired_by_seed(tmp_path: Path, kind: str) -> None:
    """A large spread that both arms share cancels."""
    common = (0.0, 5.0, 10.0)
    readings: Readings = {}
    for seed, (shared, shift) in enumerate(zip(common, SHIFTS, strict=True), 1):
        readings["base", seed] = {"late": 2 + shared}
        readings["passed", seed] = {"late": 2 + shared + shift}
    found = measure(tmp_path, {"kind": kind, "arm": "passed", "against": "base", "times_context": 4.0}, readings)
    same(found, np.exp(student(SHIFTS)))
    assert "divided by the same for base <b>&" in found.words


def test_restarted_names_the_arm_that_is_restarted(tmp_path: Path) -> None:
    shifts = dict(enumerate(SHIFTS, 1))
    readings: Readings = {("passed", seed): {"late": 3.0 + x, "restart": 9.0} for seed, x in shifts.items()}
    readings |= {("base", seed): {"restart": 2.5} for seed in shifts}
    quantity = {"kind": "restart_ratio", "arm": "passed", "times_context": 4.0}
    mean = np.mean(SHIFTS)
    assert measure(tmp_path, quantity | {"restarted": "base"}, readings).value == pytest.approx(np.exp(mean + 0.5))
    assert measure(tmp_path, quantity, readings).value == pytest.approx(np.exp(mean - 6.0))


def test_a_position_is_the_same_for_every_training_context(tmp_path: Path) -> None:
    """T = 8 and T = 16: 4 T are different positions."""
    readings: Readings = {("passed", seed): {"late": 2.0 + shift} for seed, shift in enumerate(SHIFTS, 1)}
    at = {"kind": "restart_ratio", "arm": "passed", "against": "base"}
    task = figure_task([claim(at | {"position": 32}, above=0.0), claim(at | {"times_context": 4.0}, "own", above=0.0)])
    write_tables(tmp_path, task, readings)
    longer = [one.model_copy(update={"context": 16}) if one.arm == "passed" else one for one in task.series]
    task = task.model_copy(update={"series": tuple(longer)})
    position, own = (one.quantity for one in task.figure.claims)
    found = estimate(task, "tiny", position, tmp_path)
    same(found, np.exp(student(SHIFTS)))
    assert "before, at the last quarter of 32 tokens; divided" in found.words
    with pytest.raises(UndecidableError, match="position 64"):
        estimate(task, "tiny", own, tmp_path)


def test_a_restart_is_read_at_one_place() -> None:
    at = {"kind": "restart_ratio", "arm": "base"}
    for places in ({}, {"times_context": 4.0, "position": 32}):
        with pytest.raises(ConfigError, match=r"give either 'times_context' or 'position' \(tokens\)"):
            RestartRatio.parse(at | places, "tests")
    assert "position" not in RestartRatio.parse(at | {"times_context": 4.0}, "tests").content(), "ids stay the same"


def test_one_seed_has_an_interval_over_paired_sequences(tmp_path: Path) -> None:
    shifts = [0.1, 0.3, 0.2, 0.6, 0.4]
    common = [0.0, 9.0, 3.0, 5.0, 7.0]
    readings: Readings = {
        ("base", 1): {"late": common},
        ("passed", 1): {"late": [a + b for a, b in zip(common, shifts, strict=True)]},
    }
    quantity = AT | {"arm": "passed", "against": "base"}
    found = measure(tmp_path, quantity, readings, (1,), sequences=5)
    same(found, np.exp(student(shifts)))
    assert found.interval == Method(STUDENT, 5, SEQUENCES, logarithms=True)


def test_norm_growth_of_one_seed_is_a_ratio_of_means(tmp_path: Path) -> None:
    norms = [1.0, 2.0, 3.0, 6.0]
    quantity = {"kind": "state_norm_growth", "arm": "base", "times_context": 4.0}
    found = measure(tmp_path, quantity, {("base", 1): {"norm": norms}}, (1,))
    half = stats.t.ppf(0.975, 3) * stats.sem(norms) / 3.0  # delta method: relative error of the mean
    same(found, np.exp([np.log(3.0), np.log(3.0) - half, np.log(3.0) + half]))


def test_head_drift_counts_growth_and_shrinking(tmp_path: Path) -> None:
    seeds: Readings = {("base", seed): {"heads": [1.0, 2.0, 0.25, 8.0 * seed]} for seed in (1, 2, 3)}
    seeds |= {("passed", seed): {"heads": 0.5} for seed in (1, 2, 3)}
    drift = {"kind": "head_drift", "arm": "base", "times_context": 4.0}
    largest = student(np.log([8.0, 16.0, 24.0]))
    same(measure(tmp_path, drift | {"heads": "largest"}, seeds), np.exp(largest))
    means = np.log([64.0, 128.0, 192.0]) / 4  # 1 * 2 * 4 * 8
    same(measure(tmp_path, drift, seeds), np.exp(student(means)))
    found = measure(tmp_path, drift | {"against": "passed"}, seeds)
    same(found, np.exp(student(means - np.log(2.0))))
    assert "divided by the same for" in found.words
    with pytest.raises(UndecidableError, match=r"all 3 seeds gave exactly 2\.82843"):  # between 2 and 4
        measure(tmp_path, drift | {"heads": "median"}, seeds)


def test_head_drift_of_one_seed_counts_shrinking_in_all_resamples(tmp_path: Path) -> None:
    """At 4 T the sequences have 0.25 to 0.325 of the std at T."""
    task = figure_task([claim({"kind": "head_drift", "arm": "base", "times_context": 4.0}, above=1.0)], (1,))
    write_tables(tmp_path, task, {("base", 1): {"heads": 0.25}})
    (path,) = (tmp_path / f"{s.tables['state_statistics']}.parquet" for s in task.series if s.arm == "base")
    late = pl.when(pl.col("position") == 32).then(1 + 0.1 * pl.col("sequence")).otherwise(1.0)
    frame = read_table(path, StateStatistics.table).with_columns(std=pl.col("std") * late)
    write_table(frame, StateStatistics.table, path, {})
    found = estimate(task, "tiny", task.figure.claims[0].quantity, tmp_path)
    assert found.value == pytest.approx(1 / (0.25 * 1.15))
    assert 1 / 0.325 < found.low < found.value < found.high < 1 / 0.25


def test_seeds_that_differ_by_rounding_are_equal(tmp_path: Path) -> None:
    """0.3 - 0.2 differs from 0.2 - 0.1 in the last bit; their spread is not an interval."""
    excess = {1: 0.2 - 0.1, 2: 0.3 - 0.2, 3: 0.4 - 0.3}
    assert len(set(excess.values())) == 3
    readings: Readings = {("base", seed): {"excess": one} for seed, one in excess.items()}
    quantity = {"kind": "value_at", "measurement": "length_class", "column": "excess", "arm": "base"}
    with pytest.raises(UndecidableError, match=r"all 3 seeds gave exactly 0\.1"):
        measure(tmp_path, quantity, readings)
    readings["base", 3] = {"excess": 0.1 + 1e-9}
    assert measure(tmp_path, quantity, readings).low < 0.1


def test_rounding_scales_with_the_limits() -> None:
    column = {"measurement": "accuracy", "column": "correct"}
    plain = ValueAt(arm="base", **column)
    wide = {"kind": "value_at", "limits": [-1000, 10], **column}
    assert plain.rounding == ROUNDING
    assert plain.model_copy(update={"limits": (-1000.0, 10.0)}).rounding == 1000 * ROUNDING
    assert plain.model_copy(update={"limits": (0.0, 1000.0), "scale": "ratio"}).rounding == ROUNDING
    assert OwnTable(of=wide).rounding == 1000 * ROUNDING
    assert Effect(of=wide, axis="n").rounding == 1000 * ROUNDING


@pytest.mark.parametrize("kind", ["perplexity_at", "perplexity_growth", "restart_ratio", "value_at"])
def test_only_the_last_quarter_is_read(tmp_path: Path, kind: str) -> None:
    """Of 4 T = 32 positions only [24, 32) count, and for the growth [4, 8): the loss is 1.5 at 4 and 2.5 at 6."""
    column = {"measurement": "position_loss", "column": "loss", "scale": "logarithm"} if kind == "value_at" else {}
    task = figure_task([claim({"kind": kind, "arm": "base", "times_context": 4.0} | column, above=0.0)], (1,))
    write_tables(tmp_path, task, {})
    (path,) = (tmp_path / f"{s.tables['position_loss']}.parquet" for s in task.series if s.arm == "base")
    start = pl.col("position_from")
    late = pl.when(start >= 24).then(3.0 + 0.1 * pl.col("sequence")).when(start >= 8).then(9.0)
    frame = read_table(path, PositionLoss.table)
    frame = frame.with_columns(loss=late.when(start >= 4).then(start / 2 - 0.5).otherwise(9.0))
    write_table(frame, PositionLoss.table, path, {})
    found = estimate(task, "tiny", task.figure.claims[0].quantity, tmp_path)
    assert found.value == pytest.approx(np.exp(3.15 - (2.0 if kind in ("perplexity_growth", "restart_ratio") else 0.0)))


def test_bootstrapped_sequences_that_agree_have_no_interval(tmp_path: Path) -> None:
    quantity = {"kind": "head_drift", "arm": "base", "times_context": 4.0}
    with pytest.raises(UndecidableError, match="all 4 sequences of one seed gave exactly 4: no spread, no interval"):
        measure(tmp_path, quantity, {("base", 1): {"heads": 0.25}}, (1,))


SHARE = {"kind": "repaired_share", "arm": "passed", "before": "base", "restarted": "base", "times_context": 4.0}
BROKEN: Readings = {("base", seed): {"late": 2.0 + seed} for seed in (1, 2, 3)}  # log ratios 1, 2 and 3
RISING = {"kind": "order", "arm": "base", "measurement": "effective_remembrance", "x": "t", "column": "value"}
RISING |= {"where": {"distance": "total_variation"}}
HALVED: Readings = {("passed", seed): {"late": 2.0 + seed / 2} for seed in (1, 2, 3)}


@pytest.mark.parametrize(("left", "verdict"), [(0.3, CONFIRMED), (0.7, REFUTED), (0.5, OPEN)])
def test_the_repaired_share_of_each_seed_is_averaged(tmp_path: Path, left: float, verdict: str) -> None:
    """Seeds may break by different factors. What is left is a share of each."""
    left_of = {seed: left + 0.01 * (seed - 2) for seed in (1, 2, 3)}
    readings = BROKEN | {("passed", seed): {"late": 2.0 + seed * left_of[seed]} for seed in (1, 2, 3)}
    same(measure(tmp_path, SHARE, readings), student([1 - share for share in left_of.values()]))
    task = figure_task([claim(SHARE, above=0.5)])
    assert judge(task, tmp_path)["verdict"].to_list() == [verdict]


def test_the_repaired_share_is_relative_to_the_own_restart_without_restarted(tmp_path: Path) -> None:
    own = {key: value for key, value in SHARE.items() if key != "restarted"}
    readings = BROKEN | {("passed", seed): {"late": 3.0, "restart": 3.0 - seed / 4} for seed in (1, 2, 3)}
    found = measure(tmp_path, own, readings | {("passed", 3): {"late": 3.0, "restart": 1.5}})
    same(found, student([0.75, 0.75, 0.5]))


def test_the_repaired_share_of_one_seed_is_bootstrapped(tmp_path: Path) -> None:
    readings: Readings = {("base", 1): {"late": [3.0, 4.0, 3.0, 4.0]}, ("passed", 1): {"late": [2.5, 3.0, 2.0, 3.5]}}
    found = measure(tmp_path, SHARE, readings, (1,))
    assert found.value == pytest.approx(0.5)
    assert 0 < found.low < 0.5 < found.high < 1  # the share left is 0 to .75 by sequence
    assert found.interval.words().startswith("95% bootstrap over 4 sequences of one seed")


def test_nothing_can_be_repaired_if_nothing_breaks(tmp_path: Path) -> None:
    with pytest.raises(UndecidableError, match="seed 2: 'base' does not break, so nothing can be repaired"):
        measure(tmp_path, SHARE, BROKEN | {("base", 2): {"late": 1.9}})


def test_a_pooled_share_needs_no_break_on_every_seed(tmp_path: Path) -> None:
    """Its interval is that of Fieller: the shares that a t test of the paired logarithms keeps."""
    before, after = np.array([1.0, -0.1, 1.2, 0.9, 1.1]), np.array([0.3, 0.1, 0.4, 0.2, 0.3])
    readings = {("base", seed): {"late": 2.0 + one} for seed, one in enumerate(before)}
    readings |= {("passed", seed): {"late": 2.0 + one} for seed, one in enumerate(after)}
    pooled = SHARE | {"pooled": True}
    found = measure(tmp_path, pooled, readings, tuple(range(5)))
    assert found.value == pytest.approx(1 - after.sum() / before.sum())
    for end in (found.low, found.high):
        assert stats.ttest_1samp((1 - end) * before - after, 0.0).pvalue == pytest.approx(0.05)
    assert found.low < found.value < found.high
    assert found.tails is not None
    expected = stats.ttest_1samp((1 - 0.5) * before - after, 0.0).pvalue
    assert found.tails.two_sided(0.5) == pytest.approx(expected)
    assert found.by_seed[1] == pytest.approx({"before": -0.1, "after": 0.1})
    assert found.interval.words() == "95% Fieller over 5 seeds"
    (verdict,) = judge(figure_task([claim(pooled, above=0.5)], tuple(range(5))), tmp_path)["by_seed"]
    assert json.loads(verdict)["1"] == pytest.approx({"before": -0.1, "after": 0.1})
    few = {("base", seed): {"late": 2.0 + one} for seed, one in enumerate([1.0, -1.0, 3.0])}
    few |= {("passed", seed): {"late": 2.0 + seed / 10} for seed in range(3)}
    with pytest.raises(UndecidableError, match="the seeds do not show that 'base' breaks"):
        measure(tmp_path, pooled, few, tuple(range(3)))
    with pytest.raises(UndecidableError, match=r"all 3 seeds gave exactly 0\.5: no spread, no interval"):
        measure(tmp_path, pooled, BROKEN | HALVED)
    with pytest.raises(ConfigError, match="'pooled' shares cannot be compared"):
        figure_task([claim(pooled | {"against": "base"}, above=0.5)])


def test_a_share_of_a_break_needs_one_context(tmp_path: Path) -> None:
    task = figure_task([claim(SHARE, above=0.5)])
    series = [one.model_copy(update={"context": 2 * one.context}) if one.arm == "base" else one for one in task.series]
    mixed = task.model_copy(update={"series": tuple(series)})
    write_tables(tmp_path, task, BROKEN)
    with pytest.raises(UndecidableError, match="'base' has a training context of 16 and 'passed' of 8; a share"):
        estimate(mixed, "tiny", mixed.figure.claims[0].quantity, tmp_path)


def test_remembrance_reads_t_one_context_before_the_end(tmp_path: Path) -> None:
    values = (0.4, 0.6, 0.5)
    readings: Readings = {("base", seed): {"remembrance": x} for seed, x in enumerate(values, 1)}
    quantity = {"kind": "remembrance", "arm": "base", "distance": "jensen_shannon"}
    mean, low, high = student(values)
    same(measure(tmp_path, quantity, readings), (mean, max(low, 0.0), high))  # t = 24
    halfway = measure(tmp_path, quantity | {"kept_contexts": 1.5}, readings)  # t = 20, between 16 and 24
    assert halfway.value == pytest.approx(mean * 20 / 24)
    readings |= {("passed", seed): {"remembrance": 0.25} for seed in (1, 2, 3)}
    found = measure(tmp_path, quantity | {"against": "passed"}, readings)
    same(found, np.exp(student(np.log(np.array(values) / 0.25))))
    assert "divided by" in found.words


SHAPE = {"kind": "shape_difference", "arm": "base", "distance": "one_minus_cosine"}
# Remembrance is t / 48 at t = 0, 8, 16, 24, 28, 31. A list of factors scales 1 - cosine at each of them.
RANGE = 31 / 48


def test_scale_does_not_change_the_shape(tmp_path: Path) -> None:
    """Two rising curves of different shape do differ, although a rank correlation would not see it."""
    late = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0 before the last t
    for cosine, expected in ((1.0, 0.0), (0.3, 0.0), (late, 28 / 48 / RANGE), (-1.0, 1.0)):
        with pytest.raises(UndecidableError, match="all 3 seeds gave exactly") as info:
            measure(tmp_path, SHAPE, {("base", seed): {"cosine": cosine} for seed in (1, 2, 3)})
        assert list(info.value.by_seed.values()) == pytest.approx([expected] * 3, abs=1e-12)


def test_shapes_are_compared_seed_by_seed(tmp_path: Path) -> None:
    readings: Readings = {}
    for seed, factor in ((1, 0.5), (2, 0.25), (3, 0.75)):
        readings["base", seed] = {"cosine": [1.0, 1.0, 1.0, factor, 1.0, 1.0]}  # lower at t = 24 only
    mean, low, high = student([0.5 * 24 / 31, 0.75 * 24 / 31, 0.25 * 24 / 31])
    same(measure(tmp_path, SHAPE, readings), (mean, max(low, 0.0), min(high, 1.0)))


def test_a_constant_curve_has_no_shape(tmp_path: Path) -> None:
    with pytest.raises(UndecidableError, match="no finite number"):
        measure(tmp_path, SHAPE, {("base", 1): {"cosine": 0.0}}, (1,))


def test_against_the_same_arm_of_another_model(tmp_path: Path) -> None:
    """Readings are paired by seed. Without the other panel the quantity is undecidable."""
    quantity = {"kind": "perplexity_at", "arm": "base", "against": "base", "times_context": 4.0}
    task = figure_task([claim(quantity | {"against_model": "tiny"}, above=1.0)], panels=("large", "tiny"))
    shifts = dict(enumerate(SHIFTS, 1))
    write_tables(tmp_path, task, {("base", seed): {"late": 2.0} for seed in shifts})
    for series in task.series:
        if series.panel == "large" and series.arm == "base":
            path = tmp_path / f"{series.tables['position_loss']}.parquet"
            frame = read_table(path, PositionLoss.table).with_columns(loss=2.0 + shifts[series.seed])
            write_table(frame, PositionLoss.table, path, {})
    found = estimate(task, "large", task.figure.claims[0].quantity, tmp_path)
    same(found, np.exp(student(SHIFTS)))
    assert "divided by the same for base <b>& of tiny" in found.words
    alone = task.model_copy(update={"series": tuple(s for s in task.series if s.panel == "large")})
    with pytest.raises(UndecidableError, match="'base' does not exist"):
        estimate(alone, "large", task.figure.claims[0].quantity, tmp_path)


def test_the_log_of_a_zero_or_infinite_mean_is_nan() -> None:
    sound = log_mean_reading(np.array([1.0, 2.0, 3.0]))
    for values in ([0.0, 0.0, 0.0], [1.0, np.inf, 2.0], [1e308, 1e308, 1e308], [1.0, np.nan, 2.0]):
        with np.errstate(all="raise"):
            broken = log_mean_reading(np.array(values))
            differences = (sound - broken, broken - sound, broken - broken)
        for reading in (broken, *differences):
            assert math.isnan(reading.value), values
            assert reading.sequences == 3


@pytest.mark.parametrize(
    ("quantity", "readings", "seeds", "reason"),
    [
        (AT | {"arm": "control"}, {}, (1, 2), "does not exist"),
        (AT | {"times_context": 8.0}, {}, (1, 2), "up to position 32"),
        (AT | {"kind": "restart_ratio", "times_context": 8.0}, {}, (1, 2), "position 64"),
        (GROWTH | {"times_context": 8.0}, {}, (1, 2), "64 is needed"),
        (REMEMBRANCE | {"kept_contexts": 5.0}, {}, (1, 2), "t = -8 is needed"),
        ({"kind": "parameter_ratio", "model": "absent"}, {}, (1,), "not among"),
        (AT, {("base", 2): {"late": [1.0, math.nan, 1.0, 1.0]}}, (1, 2), "seed 2"),
        (AT, {("base", 1): {"late": 1e4}}, (1, 2), "interval is not finite: an overflow"),
        (GROWTH, OVERFLOWED, (1, 2, 3), "seed 2: an overflow"),
        (GROWTH, HUGE, (1, 2, 3), "seed 2: an overflow"),
        (GROWTH | {"arm": "passed", "against": "base"}, OVERFLOWED, (1, 2, 3), "seed 2: an overflow"),
        (REMEMBRANCE | {"arm": "passed", "against": "base"}, FORGETS, (1, 2, 3), "seed 1, 2, 3: .* part that is 0"),
        (REMEMBRANCE | {"against": "passed"}, FORGETS, (1,), "seed 1: .* part that is 0"),
        (AT, {}, (1, 2, 3), "all 3 seeds gave exactly 7.38906: no spread, no interval"),
        (AT, {}, (1,), "all 4 sequences of one seed gave exactly 7.38906: no spread, no interval"),
        (RISING, {}, (1,), "all sequences of one seed gave exactly the same step: no spread, no interval"),
        (SHARE, BROKEN | HALVED, (1,), "all 4 sequences of one seed gave exactly 0.5: no spread, no interval"),
        (AT | {"against": "passed"}, BOTH_INFINITE, (1, 2), "seed 1: an overflow"),
    ],
)
def test_undecidable_quantities_and_their_reasons(
    tmp_path: Path, quantity: Any, readings: Readings, seeds: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(UndecidableError, match=reason):
        measure(tmp_path, quantity, readings, seeds)


def test_one_sequence_of_one_seed_is_undecidable(tmp_path: Path) -> None:
    with pytest.raises(UndecidableError, match="one sequence"):
        measure(tmp_path, AT, {}, (1,), sequences=1)


def test_a_diverged_run_is_undecidable(tmp_path: Path) -> None:
    task = figure_task([claim(AT, above=0.0)])
    write_tables(tmp_path, task, {})
    path = tmp_path / f"{task.series[1].tables['position_loss']}.parquet"
    write_table(read_table(path), PositionLoss.table, path, {"diverged": "loss is NaN at step 3"})
    with pytest.raises(UndecidableError, match="the run of 'base', seed 2, diverged"):
        estimate(task, "tiny", task.figure.claims[0].quantity, tmp_path)


def test_a_missing_table_is_an_error_and_not_a_verdict(tmp_path: Path) -> None:
    task = figure_task([claim(AT, above=0.0)])
    with pytest.raises(TableError, match="no such table"):
        estimate(task, "tiny", task.figure.claims[0].quantity, tmp_path)


def test_arms_without_shared_seeds_and_duplicate_runs_are_undecidable(tmp_path: Path) -> None:
    quantity = AT | {"arm": "passed", "against": "base"}
    task = figure_task([claim(quantity, above=0.0)], seeds=(1, 2))
    write_tables(tmp_path, task, {})
    apart = [s for s in task.series if (s.arm, s.seed) in {("base", 1), ("passed", 2)}]
    with pytest.raises(UndecidableError, match="share no seed"):
        estimate(task.model_copy(update={"series": apart}), "tiny", task.figure.claims[0].quantity, tmp_path)
    restarted = RestartRatio(arm="passed", times_context=4.0, restarted="base")
    with pytest.raises(UndecidableError, match="the restarted arm 'base' has no seed 2"):
        estimate(task.model_copy(update={"series": apart}), "tiny", restarted, tmp_path)
    twice = (*task.series, task.series[0].model_copy(update={"run": "another"}))
    with pytest.raises(UndecidableError, match="several runs of seed 1"):
        estimate(task.model_copy(update={"series": twice}), "tiny", task.figure.claims[0].quantity, tmp_path)


def test_a_measurement_is_read_by_its_name(tmp_path: Path) -> None:
    """`measurement` names the first measurement of a quantity, the field with the name of a kind the second."""
    plain = {"kind": "restart_ratio", "arm": "base", "times_context": 4.0}
    task = figure_task([claim(plain, above=0.0)])
    write_tables(tmp_path, task, {("base", seed): {"late": 2.0 + x} for seed, x in enumerate(SHIFTS, 1)})
    renamed = []
    for one in task.series:
        tables = {"long": one.tables["position_loss"], "again": one.tables["restart_loss"]}
        renamed.append(one.model_copy(update={"tables": tables}))
    task = task.model_copy(update={"series": tuple(renamed)})
    quantity = RestartRatio.model_validate(plain)
    named = RestartRatio.model_validate(plain | {"measurement": "long", "restart_loss": "again"})
    same(estimate(task, "tiny", named, tmp_path), np.exp(student(SHIFTS)))
    with pytest.raises(UndecidableError, match="_loss is not measured for the arm 'base'"):
        estimate(task, "tiny", quantity, tmp_path)
    assert named.canonical("tiny") == quantity.canonical("tiny")
    assert not quantity.content().keys() & {"measurement", "restart_loss"}


def test_named_measurements_must_exist_in_the_figure() -> None:
    quantity = {"kind": "perplexity_at", "arm": "base", "times_context": 4.0, "measurement": "position_los"}
    with pytest.raises(ConfigError, match=r"claims.it.quantity.measurement: no measurement 'position_los' in this"):
        figure_task([claim(quantity, above=0.0)])
