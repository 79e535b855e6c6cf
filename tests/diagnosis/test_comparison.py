"""Comparisons of two diagnoses are paired by window."""

from __future__ import annotations

import math

import numpy as np
import pytest
from diagnosis.fabricated import CONTEXT, diagnosis, fails_from, losses, tables
from scipy import stats

from ssm.claims.table_numbers import mean_loss
from ssm.diagnosis.comparison import compare
from ssm.diagnosis.intervals import reach
from ssm.specs.diagnosis import ENOUGH


def test_changes_are_paired_by_window() -> None:
    before, after = diagnosis(tables(7, fails_from(3100))), diagnosis(tables(7))
    found = compare(before, after)
    late = [mean_loss(d.tables.position_loss, 24576, 32768)["loss"].to_numpy() for d in (before, after)]
    change = late[1] - late[0]
    half = reach(64) * change.std(ddof=1)
    low, high = change.mean() - half, change.mean() + half
    assert half > stats.t.ppf(0.975, 63) * stats.sem(change)  # it allows for a window that was not drawn
    assert found.sequences == 64
    far = found.far.factor
    assert (far.value, far.low, far.high) == pytest.approx(np.exp([change.mean(), low, high]))
    assert found.in_context.factor.value == 1.0
    assert list(found.ratios) == [4096, 8192, 16384, 32768]
    # The text is the same. So the restarted losses and the changes are equal.
    assert found.ratios[32768].factor.value == pytest.approx(far.value)
    assert found.far.before == before.readings.far
    assert found.far.after == after.readings.far
    assert change.std() < late[0].std()  # the difficulty of a window's text cancels


def test_the_windows_that_both_have_read_are_compared() -> None:
    before, after = diagnosis(tables(7, fails_from(3100))), diagnosis(tables(7, sequences=16))
    found = compare(before, after)
    assert found.sequences == 16
    first = [mean_loss(d.tables.position_loss, 24576, 32768)["loss"].to_numpy()[:16] for d in (before, after)]
    assert found.far.factor.value == pytest.approx(math.exp((first[1] - first[0]).mean()))
    assert found.far.before.value == pytest.approx(math.exp(first[0].mean()))
    assert compare(before, after, 4).sequences == 4


def test_a_loss_that_is_not_a_number_has_no_change() -> None:
    full, _ = losses(7, sequences=ENOUGH)
    before, after = diagnosis(tables(7)), diagnosis(tables(7))
    lost = full.with_columns(loss=math.nan)
    found = compare(before, diagnosis(type(after.tables)(lost, after.tables.restart_loss, after.tables.length_class)))
    assert math.isnan(found.far.factor.value)
    assert (found.far.factor.low, found.far.factor.high) == (-math.inf, math.inf)
    assert CONTEXT not in found.ratios
