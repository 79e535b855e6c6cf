"""The plot `ranking`: models in the order of a quantity of the first arm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import synthetic
from figures.synthetic import line

from ssm.figures.draw import draw_figure
from ssm.figures.figure import FigureTask
from ssm.figures.plots.ranking import Ranking

RATIO = {"kind": "restart_ratio", "times_context": 2, "restarted": "base"}
EXCESS = {"small": 0.1, "tiny": 0.0, "large": 0.5}  # nats that the full history adds to the loss of the base
SPREAD = 0.02  # nats between the two seeds


def ranked(folder: Path, **plot: Any) -> FigureTask:
    """Three models. State Passing halves the excess of each; only the base is restarted."""
    series = []
    for model, excess in EXCESS.items():
        for seed in range(2):
            for arm, share in (("base", 1.0), ("state_passing", 0.5)):
                name = f"{model}-{arm}{seed}"
                value = 1.0 + share * excess + SPREAD * seed
                synthetic.position_loss(folder / f"{name}.parquet", 64, lambda p, v=value: v)
                tables = {"position_loss": name}
                if arm == "base":
                    synthetic.restart_loss(folder / f"r{name}.parquet", 32, 64, lambda p: 1.0)
                    tables["restart_loss"] = f"r{name}"
                series.append(synthetic.series(arm, seed, panel=model, **tables))
    return synthetic.task([{"kind": "ranking", "of": RATIO} | plot], series)


def test_a_line_has_the_size_of_its_model_only_if_another_has_the_same_title(tmp_path: Path) -> None:
    titles, sizes = {"tiny": "Tiny, wide"}, {"tiny": "6.23k", "small": "15k"}
    task = ranked(tmp_path).model_copy(update={"titles": titles, "sizes": sizes})
    assert task.title_of("tiny") == "Tiny, wide, 6.23k parameters"
    (axes,) = draw_figure(task, tmp_path).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["large", "small", "Tiny, wide"]
    alike = task.model_copy(update={"titles": titles | {"small": "Tiny, wide"}})
    (axes,) = draw_figure(alike, tmp_path).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["large", "Tiny, wide, 15k", "Tiny, wide, 6.23k"]


def test_models_are_in_the_order_of_the_first_arm(tmp_path: Path) -> None:
    (axes,) = draw_figure(ranked(tmp_path, level=1.0), tmp_path).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["large", "small", "tiny"]
    markers = [
        drawn for drawn in axes.lines if drawn.get_marker() == "o" and len(np.atleast_1d(drawn.get_xdata())) == 1
    ]
    found = [float(np.squeeze(drawn.get_xdata())) for drawn in markers]
    assert found == pytest.approx([np.exp(excess + SPREAD / 2) for excess in (0.5, 0.1, 0.0)])
    assert axes.get_xscale() == "log"


def test_an_arm_has_its_interval_and_its_seeds(tmp_path: Path) -> None:
    (axes,) = draw_figure(ranked(tmp_path, arms=["state_passing"]), tmp_path).axes
    own = [np.asarray(drawn.get_xdata(), dtype=float) for drawn in axes.lines]
    seeds = [np.exp(0.25), np.exp(0.25 + SPREAD)]
    assert any(len(x) == 2 and x == pytest.approx(seeds) for x in own)
    half = 12.706 * SPREAD / 2  # Student's t with one degree of freedom, times the standard error
    ends = [np.exp(0.25 + SPREAD / 2 - half), np.exp(0.25 + SPREAD / 2 + half)]
    assert any(len(x) == 2 and x == pytest.approx(ends, rel=1e-3) for x in own)


def test_small_panels_have_the_same_order_and_one_axis(tmp_path: Path) -> None:
    *small, below = draw_figure(ranked(tmp_path, curves=True), tmp_path).axes
    assert [axes.texts[-1].get_text() for axes in small] == ["large", "small", "tiny"]
    np.testing.assert_allclose(line(small[0], "base").get_ydata(), np.exp(1.5 + SPREAD / 2 + 0.05))
    assert len({axes.get_ylim() for axes in small}) == 1
    assert [bool(axes.get_ylabel()) for axes in small] == [True, False, False]
    assert len(below.get_yticks()) == 3


def test_a_model_without_a_number_is_first_and_says_so(tmp_path: Path) -> None:
    task = ranked(tmp_path)
    synthetic.diverge(tmp_path / "tiny-base1.parquet", "position_loss")
    (axes,) = draw_figure(task, tmp_path).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["tiny (no number)", "large", "small"]


def test_bars_and_sweeps_need_the_restarted_loss_of_the_restarted_arm_alone(tmp_path: Path) -> None:
    share = {"kind": "repaired_share", "before": "base", "restarted": "base", "times_context": 2}
    curve = {"kind": "sweep", "of": share, "families": {"dose": ["base", "state_passing"]}, "at": [0, 1]}
    series = ranked(tmp_path).series[:4]  # the model "small"
    drawings = [curve, {"kind": "bars", "of": share, "arms": ["state_passing"]}]
    sweep, bars = draw_figure(synthetic.task(drawings, [one.content() for one in series]), tmp_path).axes
    expected = np.mean([1 - (0.05 + SPREAD * seed) / (0.1 + SPREAD * seed) for seed in range(2)])
    assert line(sweep, "dose").get_ydata() == pytest.approx([0.0, expected])
    assert [patch.get_width() for patch in bars.patches] == pytest.approx([expected])


def test_without_the_chosen_arms_nothing_is_drawn(tmp_path: Path) -> None:
    """An arm that is null at a scale has no series there."""
    ranking = Ranking.model_validate({"kind": "ranking", "of": RATIO, "arms": ["control"]})
    assert ranking.draw(ranked(tmp_path), tmp_path, {}) == []
