"""Classes of length extension of curves with a known class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from ssm.base.bins import bin_edges
from ssm.evaluation.length_class import NO_RISE, length_class
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss

CONTEXT, LENGTH, SEQUENCES = 32, 2048, 64


def classified(
    expected_loss: Callable[[np.ndarray], np.ndarray],
    noise: float = 0.3,
    seed: int = 0,
    sequences: int = SEQUENCES,
    length: int = LENGTH,
) -> dict:
    """The class of a curve with this expectation by position, and noise of this size on the loss of every token."""
    edges = bin_edges(length)
    starts, stops = edges[:-1], edges[1:]
    generator = np.random.default_rng(seed)
    level = generator.normal(0, 0.1, (sequences, 1))  # some texts are harder than others
    loss = expected_loss((starts + stops) / 2) + level
    return class_of(loss + generator.normal(0, noise, (sequences, len(starts))) / np.sqrt(stops - starts), edges)


def class_of(loss: np.ndarray, edges: np.ndarray) -> dict:
    """The class of the losses (sequences, bins) between these edges."""
    spec = LengthClass(of=PositionLoss(length=int(edges[-1]), sequences=len(loss)), context=CONTEXT)
    return length_class(spec, table_of(loss, edges)).row(0, named=True)


def table_of(loss: np.ndarray, edges: np.ndarray) -> pl.DataFrame:
    """The position_loss table of the losses (sequences, bins) between these edges."""
    sequences, starts, stops = len(loss), edges[:-1], edges[1:]
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(sequences), len(starts)),
            "position_from": np.tile(starts, sequences),
            "position_to": np.tile(stops, sequences),
            "loss": loss.flatten(),
        },
        schema=PositionLoss.table.columns,
    )


def test_a_curve_that_keeps_falling_extends_strongly() -> None:
    row = classified(lambda p: 1.5 + 3 / np.sqrt(p + 1))
    assert row["class"] == "strong"
    assert row["generalizes"]
    assert row["extends_from"] <= CONTEXT


def test_a_flat_curve_extends_weakly() -> None:
    rows = [classified(lambda p: np.full_like(p, 1.5), seed=seed) for seed in range(20)]
    assert {row["class"] for row in rows} == {"weak"}


def test_a_curve_that_rises_past_the_context_does_not_extend() -> None:
    row = classified(lambda p: 1.5 + 3 / np.sqrt(p + 1) + 0.3 * np.log2(np.maximum(p / CONTEXT, 1)))
    assert row["class"] == "none"
    assert row["extends_from"] is None
    assert not row["generalizes"]
    assert row["excess"] > 0.5
    assert row["largest_rise"] > 5 * row["largest_rise_error"]


def test_a_loss_that_overflows_past_the_context_does_not_extend() -> None:
    row = classified(lambda p: np.where(p > 4 * CONTEXT, np.nan, 1.5))
    assert row["class"] == "none"
    assert not row["generalizes"]


def test_a_curve_that_falls_from_a_later_position_extends_strongly_from_there() -> None:
    row = classified(lambda p: 1.5 - 0.3 * np.log2(np.maximum(p / 8, 1)), noise=0.05)
    assert row["class"] == "strong"
    assert 4 <= row["extends_from"] <= CONTEXT


def test_a_curve_that_settles_on_a_worse_level_does_not_extend() -> None:
    row = classified(lambda p: 1.5 + 2 * np.exp(-p / 6) + 0.5 * (p > 4 * CONTEXT))
    assert row["class"] == "none"
    assert not row["generalizes"]


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_sampling_error_rarely_counts_as_a_failure(noise: float) -> None:
    """Each of the two definitions rejects at most about 5% of flat curves."""
    rows = [classified(lambda p: np.full_like(p, 1.5), noise, seed) for seed in range(100)]
    assert sum(row["class"] == "none" for row in rows) <= 11
    assert sum(not row["generalizes"] for row in rows) <= 11


def test_every_other_sequence_chooses_the_best_bin_and_the_rest_test_it() -> None:
    """The third bin is the best of the sequences that choose, and the fifth of those that test."""
    edges = bin_edges(LENGTH)
    loss = np.ones((SEQUENCES, len(edges) - 1))
    loss[::2, 2], loss[1::2, 4] = 0.9, 0.5
    row = class_of(loss, edges)
    assert row["best_position"] == (edges[2] + edges[3]) // 2
    assert (row["excess"], row["excess_sequences"]) == (0.0, SEQUENCES // 2)


def rising(nats: float) -> Callable[[np.ndarray], np.ndarray]:
    """The expectation of a loss that rises after the context by this number of nats in each octave."""
    return lambda p: 1.5 + nats * np.log2(np.maximum(p / CONTEXT, 1))


def test_a_small_rise_is_not_decided_with_little_text() -> None:
    assert all(classified(rising(0.05), noise=0.01, seed=seed)["class"] == "none" for seed in range(5))
    noisy = [classified(rising(0.05), noise=30.0, seed=seed)["class"] for seed in range(20)]
    assert noisy.count("none") <= 4
    assert noisy.count("not decided") >= 16


@pytest.mark.parametrize(("sequences", "weak_by_no_significant_rise"), [(4, 187), (64, 54)])
def test_a_noisy_curve_that_rises_is_not_weak(sequences: int, weak_by_no_significant_rise: int) -> None:
    """Many of 200 curves that rise by 0.12 nats per octave show no significant rise. This does not make them weak."""
    kinds = [classified(rising(0.12), 17.0, seed, sequences)["class"] for seed in range(200)]
    assert kinds.count("weak") + kinds.count("strong") <= 2
    assert kinds.count("not decided") > 0.8 * weak_by_no_significant_rise


@pytest.mark.parametrize(("sequences", "noise"), [(4, 0.02), (16, 0.2), (64, 0.5)])
def test_a_rise_at_the_bound_is_weak_only_by_chance(sequences: int, noise: float) -> None:
    """The level is 5% for every number of sequences."""

    def at_the_bound(p: np.ndarray) -> np.ndarray:  # one step of the mean loss, from T to 2 T, rises by NO_RISE
        return 1.5 + 2 * NO_RISE * (p >= CONTEXT) - NO_RISE * (p >= 2 * CONTEXT)

    kinds = [classified(at_the_bound, noise, seed, sequences, 4 * CONTEXT)["class"] for seed in range(400)]
    assert kinds.count("weak") <= 0.08 * 400
    assert kinds.count("none") <= 0.08 * 400
    flat = [classified(rising(0.0), noise, seed, sequences, 4 * CONTEXT)["class"] for seed in range(100)]
    assert flat.count("weak") >= 80


@pytest.mark.parametrize("slope", [-0.2, 0.0, 0.2])
@pytest.mark.parametrize("length", [CONTEXT, CONTEXT // 2])
def test_a_curve_that_ends_at_the_context_is_not_decided(slope: float, length: int) -> None:
    """Wherever its best bin is."""
    row = classified(lambda p: 2.0 + slope * p / CONTEXT, length=length)
    assert row["class"] == "not decided"
    assert {row[name] for name in ("generalizes", "best_position", "excess", "excess_sequences")} == {None}


def test_the_class_up_to_a_length_is_the_class_of_the_curve_up_to_there() -> None:
    """The curve falls to 4 T and then rises. Within the context there is only the mean loss."""
    edges = bin_edges(LENGTH)
    middles, widths = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    curve = 2 - 0.2 * np.log2(np.minimum(middles, 128) / 8) + 1.5 * np.log2(np.maximum(middles / 128, 1))
    noise = np.random.default_rng(0).normal(0, 0.3, (SEQUENCES, len(middles))) / np.sqrt(widths)
    table = table_of(curve + noise, edges)
    of = PositionLoss(length=LENGTH, sequences=SEQUENCES)
    lengths = (16, 32, 64, 128, 256, 512, 2048, 4096)  # the curve ends at 2,048
    rows = length_class(LengthClass(of=of, context=CONTEXT, lengths=lengths), table).to_dicts()
    assert [row["length"] for row in rows] == [16, 32, 64, 128, 256, 512, 2048]
    for row in rows:
        inside = edges[1:] <= row["length"]
        mean = np.average((curve + noise)[:, inside].mean(0), weights=widths[inside])
        assert row["loss"] == pytest.approx(mean, rel=1e-12)
    assert [row["class"] for row in rows[:4]] == [None, None, "strong", "strong"]
    assert {row["class"] for row in rows[5:]} == {"none"}
    for row in rows[2:]:
        cut = table.filter(pl.col("position_to") <= row["length"])
        whole = length_class(LengthClass(of=of, context=CONTEXT), cut)
        assert "loss" not in whole.columns  # the column belongs to `lengths`
        assert whole.row(0, named=True) == {name: value for name, value in row.items() if name != "loss"}


def test_the_numbers_of_a_class_have_plain_formulas() -> None:
    """The bin after the best one is the worst, and the first step past the context is the largest rise.

    The order of the rows does not matter.
    """
    edges = bin_edges(8 * CONTEXT)
    best = int(np.flatnonzero(edges[1:] == CONTEXT)[0])
    loss = np.random.default_rng(0).normal(1.0, 0.1, (8, len(edges) - 1))
    loss[:, best] -= 0.5
    loss[:, best + 1] += 0.5
    table = table_of(loss, edges).sample(fraction=1.0, shuffle=True, seed=0)
    of = PositionLoss(length=8 * CONTEXT, sequences=8)
    row = length_class(LengthClass(of=of, context=CONTEXT), table).row(0, named=True)

    def mean_to(length: int) -> np.ndarray:
        inside = edges[1:] <= length
        return np.average(loss[:, inside], axis=1, weights=np.diff(edges)[inside])

    rise = mean_to(2 * CONTEXT) - mean_to(CONTEXT)
    excess = (loss[:, best + 1] - loss[:, best])[1::2]
    for name, values in (("largest_rise", rise), ("excess", excess)):
        assert row[name] == pytest.approx(values.mean())
        assert row[f"{name}_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(len(values)))
    assert (row["context"], row["length"], row["sequences"], row["excess_sequences"]) == (32, 256, 8, 4)
