"""The plot `scatter`: two quantities of an arm, a dot for each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import synthetic
from figures.synthetic import line

from ssm.figures.draw import draw_figure
from ssm.figures.figure import FigureTask

INSIDE, FAR = ({"kind": "perplexity_at", "times_context": k} for k in (1, 2))
LOSSES = {"tiny": (1.0, 1.5), "small": (0.5, 2.0)}  # nats inside the context and far past it


def scattered(folder: Path, **plot: Any) -> FigureTask:
    series = []
    for model, (early, late) in LOSSES.items():
        for seed in range(2):
            name = f"{model}{seed}"
            synthetic.position_loss(
                folder / f"{name}.parquet", 64, lambda p, a=early + 0.1 * seed, b=late: a if p <= 32 else b
            )
            series.append(synthetic.series("base", seed, panel=model, position_loss=name))
    return synthetic.task([{"kind": "scatter", "arm": "base", "of": FAR, "by": INSIDE} | plot], series)


def test_every_run_has_a_dot_at_its_two_numbers(tmp_path: Path) -> None:
    (axes,) = draw_figure(scattered(tmp_path, level=1.0, x_label="inside"), tmp_path).axes
    for model, (early, late) in LOSSES.items():
        x, y = (np.asarray(values, dtype=float) for values in line(axes, model).get_data())
        assert x == pytest.approx(np.exp([early, early + 0.1]), rel=0.06)  # the sequences differ by .1 nats
        assert y == pytest.approx(np.exp([late, late]), rel=0.06)
    assert (axes.get_yscale(), axes.get_xlabel(), axes.get_ylabel()) == ("log", "inside", "perplexity at")


def test_a_diverged_run_has_no_dot_for_its_model(tmp_path: Path) -> None:
    task = scattered(tmp_path)
    synthetic.diverge(tmp_path / "small0.parquet", "position_loss")
    (axes,) = draw_figure(task, tmp_path).axes
    assert [drawn.get_label() for drawn in axes.lines] == ["tiny"]


def test_models_with_the_same_title_both_have_their_dots(tmp_path: Path) -> None:
    task = scattered(tmp_path).model_copy(update={"titles": {"tiny": "Same", "small": "Same"}})
    (axes,) = draw_figure(task, tmp_path).axes
    assert [drawn.get_label() for drawn in axes.lines] == ["Same", "Same"]


def test_ticks_reach_the_level(tmp_path: Path) -> None:
    (axes,) = draw_figure(scattered(tmp_path, level=0.1), tmp_path).axes
    assert min(axes.get_yticks()) <= 0.2
