"""The rank correlation of two quantities over the models of a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims.synthetic import claim, figure_task, student, write_tables
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ssm.claims.quantities.rank_correlation import rank_correlation
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask

INSIDE, FAR = ({"kind": "perplexity_at", "times_context": k} for k in (1.0, 4.0))
QUANTITY = {"kind": "rank_correlation", "arm": "base", "x": INSIDE, "y": FAR}
MODELS = ("a", "b", "c", "d")
Losses = Sequence[Sequence[float]]  # by seed, by model


def measured(folder: Path, early: Losses, late: Losses, models: Sequence[str] = MODELS) -> FigureTask:
    """A figure with these losses, nats, inside the context and far past it."""
    task = figure_task([claim(QUANTITY, above=0.3)], panels=tuple(models))
    for place, model in enumerate(models):
        readings: dict[tuple[str, int], Mapping[str, Any]] = {
            ("base", seed): {"early": early[seed - 1][place], "late": late[seed - 1][place]} for seed in (1, 2, 3)
        }
        own = tuple(series for series in task.series if series.panel == model)
        write_tables(folder, task.model_copy(update={"series": own}), dict(readings))
    return task


def verdict(folder: Path, *given: Any, **more: Any) -> dict[str, Any]:
    """The only row of verdicts: all models have one verdict together."""
    (row,) = judge(measured(folder, *given, **more), folder).to_dicts()
    return row


ROWS = st.lists(st.tuples(st.integers(-3, 3), st.floats(-5, 5)), min_size=3, max_size=12)


@given(ROWS)
def test_it_is_that_of_scipy(rows: list[tuple[int, float]]) -> None:
    x, y = np.array(rows, dtype=float).T
    found = rank_correlation(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_all_models_have_one_verdict_with_a_number_for_each_seed(tmp_path: Path) -> None:
    early = [[1.0, 2.0, 3.0, 4.0]] * 3
    late = [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 3.0], [1.0, 3.0, 2.0, 4.0]]
    row = verdict(tmp_path, early, late)
    value, low, _ = student([1.0, 0.8, 0.8])
    assert (row["claim"], row["verdict"]) == ("it", "confirmed")
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((value, low, 1.0)), "no more than 1"
    assert row["by_seed"] == '{"1": 1.0, "2": 0.8, "3": 0.8}'


def test_the_opposite_order_refutes(tmp_path: Path) -> None:
    early = [[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 3.0, 1.0]]
    assert verdict(tmp_path, early, [[1.0, 2.0, 3.0, 4.0]] * 3)["verdict"] == "refuted"


def test_a_seed_whose_models_are_equal_has_no_number(tmp_path: Path) -> None:
    row = verdict(tmp_path, [[1.0] * 4, *[[1.0, 2.0, 3.0, 4.0]] * 2], [[1.0, 2.0, 3.0, 4.0]] * 3)
    assert (row["verdict"], row["reason"][:27]) == ("not decided", "no finite number for seed 1")


def test_two_models_have_no_rank_correlation(tmp_path: Path) -> None:
    row = verdict(tmp_path, [[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3, models=("a", "b"))
    assert row["reason"] == "2 models have the arm 'base' at this scale; 3 are needed"


def test_it_reads_the_arm_of_every_model(tmp_path: Path) -> None:
    task = figure_task([claim(QUANTITY, above=0.3)], panels=MODELS)
    read = task.series_of(task.figure.claims[0], "a")
    assert {(place, len(series)) for place, series in read.items()} == {((model, "base"), 3) for model in MODELS}


def test_the_names_of_models_do_not_change_what_is_registered() -> None:
    of = [figure_task([claim(QUANTITY, above=0.3)], panels=panels) for panels in (MODELS, ("p", "q", "r", "s"))]
    first, other = (task.figure.claims[0].quantity.canonical("", task.series) for task in of)
    assert first == other
