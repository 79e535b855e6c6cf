"""Instability on learning curves with known spikes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from claims.synthetic import claim, estimate, figure_task
from scipy import stats
from small import run_spec

from ssm.base.tables import write_table
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.quantities.instability import FEWEST, rise_of_diverged, rises_and_noise
from ssm.specs.data import DataSpec
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.learning_curve import LearningCurve

ROWS, NOISE = 300, 0.1
DATA = DataSpec.parse({"name": "bytes", "corpus": {"kind": "stdlib"}}, "tests")  # V = 256
OF_BYTES = MeasurementTask(measurement=LearningCurve(), run=run_spec(DATA)).content()


def falling(seed: int, noise: float = NOISE) -> np.ndarray:
    """A loss that falls from 5 to 2 nats like that of small models, with noise and without spikes."""
    rows = np.arange(ROWS)
    fall: np.ndarray = 2 + 3 * np.exp(-rows / 20) + np.random.default_rng(seed).normal(0, noise, ROWS)
    return fall


def spiked(seed: int, height: float = 1.0) -> np.ndarray:
    """The same loss with a spike that ends after some rows."""
    after = np.arange(ROWS) - 150  # the row of the spike
    spike: np.ndarray = falling(seed) + height * np.exp(-np.maximum(after, 0) / 4) * (after >= 0)
    return spike


def diverged(seed: int) -> np.ndarray:
    return np.append(falling(seed)[:100], math.nan)


def measure(
    folder: Path,
    what: str,
    base: Callable[[int], np.ndarray],
    passed: Callable[[int], np.ndarray] | None = None,
    **more: float,
) -> Estimate:
    """The quantity of the arm base over three seeds; with `passed`, its difference from that arm."""
    quantity = {"kind": "instability", "arm": "base", "what": what} | more | ({"against": "passed"} if passed else {})
    task = figure_task([claim(quantity, above=0.5)])
    series = []
    for one in task.series:
        name = f"learning-curve_{one.arm}_s{one.seed}"
        series.append(one.model_copy(update={"tables": {"learning_curve": name}}))
        loss = (passed or falling if one.arm == "passed" else base)(one.seed)
        steps = np.arange(1, len(loss) + 1)
        rows = {"step": steps, "tokens": 512 * steps, "loss": loss, "accuracy": [None] * len(loss)}
        table = pl.DataFrame(rows, schema=LearningCurve.table.columns)
        write_table(table, LearningCurve.table, folder / f"{name}.parquet", {"task": OF_BYTES})
    return estimate(task.model_copy(update={"series": tuple(series)}), "tiny", task.figure.claims[0].quantity, folder)


def test_noise_of_any_size_is_not_a_spike() -> None:
    for noise in (0.05, 0.1, 3.0):
        rises, found = zip(*(rises_and_noise(falling(seed, noise)) for seed in range(50)), strict=True)
        assert np.mean(found) == pytest.approx(noise, rel=0.1)
        assert max(np.array([one.max() for one in rises]) / found) < 6


def test_a_noise_free_fall_has_no_rise() -> None:
    rises, noise = rises_and_noise(falling(0, 0.0))
    assert rises.max() <= 0
    assert noise < 0.01


def test_place_and_height_of_a_spike() -> None:
    for seed in range(20):
        losses = spiked(seed, height=2.0)
        rises, noise = rises_and_noise(losses)
        assert rises.argmax() + FEWEST == pytest.approx(150, abs=2)
        assert rises.max() == pytest.approx(2.0, abs=5 * NOISE)
        assert noise == pytest.approx(NOISE, rel=0.4)
        distances = losses - pl.Series(losses).rolling_median(16).shift(1).to_numpy()
        assert noise == pytest.approx(stats.median_abs_deviation(distances[ROWS // 2 :], scale="normal"), rel=1e-5)


def test_a_spike_near_the_start_is_found() -> None:
    """There the learning rate is largest, and few rows are before it."""
    for seed in range(20):
        losses = falling(seed)
        losses[12] += 2.0  # more than the loss falls over the lag of the level
        rises, noise = rises_and_noise(losses)
        assert rises.argmax() + FEWEST == 12
        assert rises.max() > 6 * noise


def test_a_level_that_stays_higher_is_a_rise() -> None:
    """By hand: 16 rows of 3, 16 of 2 and 16 of 2.5; the lowest level is 2."""
    rises, _ = rises_and_noise(np.repeat([3.0, 2.0, 2.5], 16))
    assert rises.tolist() == [0.0] * 12 + [-1.0] * 8 + [-0.5] + [0.0] * 7 + [0.5] * 16


def test_share_of_seeds_with_a_spike(tmp_path: Path) -> None:
    none = measure(tmp_path, "spiked", falling)
    assert (none.value, none.low) == (0.0, 0.0)
    assert 0.5 < none.high < 1  # three seeds agree
    every = measure(tmp_path, "spiked", spiked)
    assert (every.value, every.high) == (1.0, 1.0)
    assert measure(tmp_path, "spiked", spiked, falling).value == 1.0
    assert measure(tmp_path, "spiked", lambda seed: (falling if seed == 1 else spiked)(seed)).value == pytest.approx(
        2 / 3
    )


def test_a_spike_exceeds_so_many_times_the_noise(tmp_path: Path) -> None:
    rises, noise = rises_and_noise(spiked(1))
    for factor, share in ((0.99, 1.0), (1.01, 0.0)):
        found = measure(tmp_path, "spiked", lambda seed: spiked(1), noises=factor * float(rises.max()) / noise)
        assert found.value == share


def test_a_diverged_run_counts_as_spiked(tmp_path: Path) -> None:
    def once(seed: int) -> np.ndarray:
        return (diverged if seed == 2 else falling)(seed)

    assert measure(tmp_path, "diverged", once).value == pytest.approx(1 / 3)
    assert measure(tmp_path, "diverged", spiked).value == 0.0
    assert measure(tmp_path, "spiked", once).value == pytest.approx(1 / 3)


def test_a_diverged_run_rises_to_the_ceiling(tmp_path: Path) -> None:
    """The rise goes from the lowest level (here by polars' rolling median) to twice the loss of a uniform guess."""
    lowest = [pl.Series(diverged(seed)[:100]).rolling_median(16, min_samples=16).min() for seed in (1, 2, 3)]
    rises = [2 * math.log(256) - float(one) for one in lowest if isinstance(one, float)]
    found = measure(tmp_path, "largest_rise", diverged)
    assert found.value == pytest.approx(np.mean(rises))
    assert found.low > 8
    assert measure(tmp_path, "largest_rise", diverged, spiked).low > 6


def test_a_rise_above_the_ceiling_before_divergence_counts() -> None:
    losses = np.append(np.repeat([3.0, 2.0, 20.0], 16), math.nan)
    assert rise_of_diverged(losses, math.log(256)) == 18.0
    assert rise_of_diverged(np.array([math.nan]), math.log(256)) == pytest.approx(math.log(256))


def test_the_largest_rise_has_an_interval_over_seeds(tmp_path: Path) -> None:
    found = measure(tmp_path, "largest_rise", spiked, falling)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(1.0 - 3.3 * NOISE + 2 * NOISE, abs=0.4)
    assert "minus the same for State Passing" in found.words


def test_too_few_rows_are_undecidable(tmp_path: Path) -> None:
    with pytest.raises(UndecidableError, match="has 31 rows; 32 are needed"):
        measure(tmp_path, "largest_rise", lambda seed: falling(seed)[:31])
