"""Learning curves: means of the logged metrics, which end with NaN if the run diverged."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from small import run_spec

from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.tables import METRICS, read_provenance, read_table
from ssm.data.store import TokenStore
from ssm.evaluation.learning_curve import learning_curve
from ssm.evaluation.measure import measure
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.learning_curve import LearningCurve
from ssm.specs.training import RunSpec
from ssm.training.loop import train

CPU = torch.device("cpu")


def logged(loss: np.ndarray, **more: object) -> pl.DataFrame:
    """Metrics of steps with these losses, of 64 tokens each."""
    steps = np.arange(1, len(loss) + 1)
    rest = dict.fromkeys(("grad_norm", "lr", "weight_decay", "state_norm"), 0.0)
    schema = {name: kind for name, kind in METRICS.columns.items() if name not in METRICS.optional or name in more}
    return pl.DataFrame({"step": steps, "tokens": 64 * steps, "loss": loss} | rest | more, schema=schema)


@pytest.mark.parametrize(("steps", "every"), [(23, 10), (20, 10), (5, 10), (7, 1), (100, 33)])
def test_rows_are_means_over_steps_and_have_the_last_of_them(steps: int, every: int) -> None:
    loss = np.random.default_rng(1).normal(3, 1, steps)
    found = learning_curve(LearningCurve(every=every), logged(loss), diverged=False)
    parts = [loss[start : start + every] for start in range(0, steps, every)]
    ends = [min(start + every, steps) for start in range(0, steps, every)]
    assert found["step"].to_list() == ends
    assert found["tokens"].to_list() == [64 * end for end in ends]
    np.testing.assert_allclose(found["loss"].to_numpy(), [part.mean() for part in parts], rtol=1e-14)
    assert found["accuracy"].to_list() == [None] * len(parts)
    assert dict(found.schema) == LearningCurve.table.columns


def test_a_task_has_an_accuracy() -> None:
    right = np.linspace(0, 1, 6)
    found = learning_curve(LearningCurve(every=2), logged(right, accuracy=right), diverged=False)
    np.testing.assert_allclose(found["accuracy"].to_numpy(), [0.1, 0.5, 0.9])


def test_a_diverged_run_ends_with_nan() -> None:
    """Also if its last losses were finite, but too large."""
    right = np.full(7, 0.5)
    found = learning_curve(LearningCurve(every=3), logged(np.arange(7.0), accuracy=right), diverged=True)
    assert found["loss"].to_list()[:2] == [1.0, 4.0]
    assert math.isnan(found["loss"][2])
    assert math.isnan(found["accuracy"][2])
    assert found["step"].to_list() == [3, 6, 7]
    of_text = learning_curve(LearningCurve(every=3), logged(np.arange(7.0)), diverged=True)
    assert of_text["accuracy"].to_list() == [None] * 3


def curve(run: RunSpec, folder: Path, snapshot: float | None = None) -> tuple[pl.DataFrame, str | None]:
    """The table of a run, and the mark of a divergence in its provenance."""
    out = folder.parent / f"{folder.name}-{snapshot}.parquet"
    measure(MeasurementTask(measurement=LearningCurve(every=2), run=run, snapshot=snapshot), out, CPU, run=folder)
    return read_table(out, LearningCurve.table), read_provenance(out).get("diverged")


def test_it_needs_the_metrics_of_the_run_and_no_tokens(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 8}, snapshots=[0.5])
    train(run, store, tmp_path / "run", CPU)
    losses = read_table(tmp_path / "run" / "metrics.parquet", METRICS)["loss"].to_numpy()
    found, diverged = curve(run, tmp_path / "run")
    np.testing.assert_allclose(found["loss"].to_numpy(), losses.reshape(4, 2).mean(1), rtol=1e-14)
    assert diverged is None
    assert curve(run, tmp_path / "run", snapshot=0.5)[0].equals(found[:2])  # up to the snapshot
    with pytest.raises(CheckpointError, match="holds the metrics of another run, the measurement needs"):
        curve(run_spec(store.spec, budget={"steps": 9}), tmp_path / "run")
    with pytest.raises(ConfigError, match="'learning_curve' needs --run"):
        measure(MeasurementTask(measurement=LearningCurve(), run=run), tmp_path / "none.parquet", CPU)


def test_a_diverged_run_has_a_curve_and_its_child_is_marked(store: TokenStore, tmp_path: Path) -> None:
    base = run_spec(
        store.spec, lr_scale=3000.0, schedule="constant", warmup=0.0, budget={"steps": 100}, snapshots=[0.02]
    )
    steps = train(base, store, tmp_path / "base", CPU)["steps"]
    found, diverged = curve(base, tmp_path / "base")
    assert found["step"].max() == steps < 100
    assert math.isnan(found["loss"][-1])
    assert found["loss"][:-1].is_finite().all()
    assert diverged is None  # the curve itself shows the divergence
    early, _ = curve(base, tmp_path / "base", snapshot=0.02)
    assert early.equals(found[:1])
    child = run_spec(store.spec, parent=base, budget={"steps": 2}, lr_scale=0.1)
    train(child, store, tmp_path / "child", CPU, parent=tmp_path / "base")
    assert str(curve(child, tmp_path / "child")[1]).startswith("its parent diverged: ")
