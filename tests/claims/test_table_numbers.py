"""Numbers read off tables, against hand-computed values and independent implementations."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ssm.base.errors import TableError
from ssm.claims.estimate import seed_interval
from ssm.claims.table_numbers import (
    by_sequence,
    head_std_growth,
    mean_loss,
    paired_log_ratio,
    position_curve,
    ratio_positions,
    remembrance_curve,
    state_norm_at,
)
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.state_statistics import StateStatistics


def losses(rows: list[tuple[int, int, int, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=PositionLoss.table.columns, orient="row")


def states(rows: list[tuple[int, int, int, int, float, float]]) -> pl.DataFrame:
    """Rows of sequence, position, layer, head, norm, std."""
    full = [(s, p, layer, head, norm, 0.0, std) for s, p, layer, head, norm, std in rows]
    return pl.DataFrame(full, schema=StateStatistics.table.columns, orient="row")


def test_mean_loss_weights_bins_by_their_tokens() -> None:
    table = losses([(1, 0, 2, 1.0), (1, 2, 8, 3.0), (1, 8, 9, 100.0), (0, 0, 2, 5.0), (0, 2, 8, 5.0), (0, 8, 9, 7.0)])
    assert mean_loss(table, 0, 8).rows() == [(0, 5.0), (1, 2.5)]
    assert mean_loss(table, 2, 9).rows() == [(0, pytest.approx(37 / 7)), (1, pytest.approx(118 / 7))]


@given(st.data())
def test_mean_loss_is_the_mean_over_tokens(data: st.DataObject) -> None:
    edges = sorted(data.draw(st.sets(st.integers(0, 60), min_size=2, max_size=10)))
    values = data.draw(st.lists(st.floats(-10, 10), min_size=len(edges) - 1, max_size=len(edges) - 1))
    bins = list(zip(edges[:-1], edges[1:], values, strict=True))
    table = losses([(3, a, b, v) for a, b, v in bins])
    start, stop = edges[0], edges[-1]
    by_token = [v for a, b, v in bins for _ in range(b - a)]
    assert mean_loss(table, start, stop)["loss"].item() == pytest.approx(np.mean(by_token), abs=1e-9)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 5), (1, 8), (0, 16), (8, 16), (4, 4)], ids=["cut", "late", "long", "beyond", "empty"]
)
def test_mean_loss_refuses_a_range_that_bins_do_not_tile(start: int, stop: int) -> None:
    with pytest.raises(TableError, match="do not tile"):
        mean_loss(losses([(0, 0, 4, 1.0), (0, 4, 8, 1.0)]), start, stop)


def test_mean_loss_refuses_gaps_overlaps_and_missing_sequences() -> None:
    for rows in (
        [(0, 0, 4, 1.0), (0, 6, 8, 1.0)],
        [(0, 0, 6, 1.0), (0, 4, 8, 1.0)],
        [(0, 0, 8, 1.0), (1, 0, 4, 1.0)],
        [(0, 0, 8, 1.0), (0, 0, 8, 2.0)],
    ):
        with pytest.raises(TableError, match="do not tile"):
            mean_loss(losses(rows), 0, 8)


def test_a_nan_or_missing_loss_stays_visible() -> None:
    for bad in (math.nan, None):
        table = losses([(0, 0, 4, 1.0), (0, 4, 8, bad), (1, 0, 4, 1.0), (1, 4, 8, 1.0)])  # type: ignore[list-item]
        assert math.isnan(mean_loss(table, 0, 8)["loss"][0])
        assert mean_loss(table, 0, 8)["loss"][1] == 1.0
        assert position_curve(table)["loss"].is_nan().to_list() == [False, True]
        assert np.isnan(by_sequence(table, ["position_from"], "loss")).tolist() == [[False, True], [False, False]]


def test_the_paired_ratio_is_a_difference_sequence_by_sequence() -> None:
    full = losses([(s, a, b, 10.0 * s + v) for s in (1, 0) for a, b, v in ((0, 24, 9.0), (24, 28, 1.0), (28, 32, 2.0))])
    restarted = losses([(0, 24, 32, 1.0), (1, 24, 32, 12.0)])
    assert paired_log_ratio(full, restarted, 32).rows() == [(0, 0.5), (1, -0.5)]
    assert ratio_positions(restarted) == [32]
    assert paired_log_ratio(full, losses([(0, 28, 32, 1.0), (1, 28, 32, 12.0)]), 32, 28).rows() == [(0, 1.0), (1, 0.0)]
    with pytest.raises(TableError, match="different sequences"):
        paired_log_ratio(full, losses([(0, 24, 32, 1.0), (2, 24, 32, 1.0)]), 32)


def test_position_curve_is_the_mean_over_sequences_with_its_standard_error() -> None:
    table = losses([(0, 0, 1, 1.0), (1, 0, 1, 2.0), (2, 0, 1, 6.0)])
    assert position_curve(table).rows() == [(0, 1, 3.0, pytest.approx(math.sqrt(7 / 3)))]
    assert math.isnan(position_curve(losses([(0, 0, 1, 1.0)]))["error"].item())


def test_remembrance_is_read_by_distance() -> None:
    rows = [(s, t, 8, d, v + s) for s in (0, 1) for t, d, v in ((4, "a", 0.2), (0, "a", 0.1), (0, "b", 0.9))]
    table = pl.DataFrame(rows, schema=EffectiveRemembrance.table.columns, orient="row")
    curve = remembrance_curve(table, "a")
    assert curve["t"].to_list() == [0, 4]
    assert curve["value"].to_list() == pytest.approx([0.6, 0.7])
    with pytest.raises(TableError, match="no distance 'c'; valid names: a, b"):
        remembrance_curve(table, "c")


def test_the_whole_state_and_single_heads_are_kept_apart() -> None:
    table = states(
        [
            row
            for s in (1, 0)
            for row in (
                (s, 32, -1, -1, 10.0 + s, 1.0),
                (s, 64, -1, -1, 20.0 + s, 1.0),
                (s, 32, 0, -1, 99.0, 99.0),
                (s, 64, 0, -1, 99.0, 99.0),
                (s, 32, 0, 0, 1.0, 1.0 + s),
                (s, 64, 0, 0, 1.0, 4.0 + s),
                (s, 32, 0, 1, 1.0, 2.0),
                (s, 64, 0, 1, 1.0, 1.0),
            )
        ]
    )
    assert state_norm_at(table, 64).rows() == [(0, 20.0), (1, 21.0)]
    assert head_std_growth(table, 32, 64).rows() == [(0, 0, 3.0), (0, 1, 0.5)]
    with pytest.raises(TableError, match="position 48; measured at 32, 64"):
        state_norm_at(table, 48)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.floats(0.5, 0.999))
def test_seed_interval_is_students(values: list[float], level: float) -> None:
    mean, low, high = seed_interval(np.array(values), level)
    error = stats.sem(values)
    expected = stats.t.interval(level, len(values) - 1, np.mean(values), error) if error else (mean, mean)
    assert mean == pytest.approx(np.mean(values))
    assert (low, high) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_seed_interval_of_one_seed_and_of_a_diverged_one() -> None:
    assert seed_interval(np.array([2.0])) == (2.0, -math.inf, math.inf)
    assert all(math.isnan(bound) for bound in seed_interval(np.array([1.0, math.nan, 2.0])))
    with pytest.raises(ValueError, match="at least one"):
        seed_interval(np.array([]))
