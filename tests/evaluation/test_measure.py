"""The provenance of a table says whether its weights are affected by a divergence, and no table is not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small import run_spec

import ssm.training.step as training_step
from ssm.base.discovery import RegistryError
from ssm.base.files import write_json
from ssm.base.tables import read_provenance
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.learning_curve import LearningCurve
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.training.loop import train
from ssm.training.metrics import PATIENCE

CPU = torch.device("cpu")


@pytest.mark.parametrize("of_diverged", [False, True])
def test_only_snapshots_from_long_before_a_divergence_are_unaffected(
    of_diverged: bool, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a child of a diverged run, none are."""
    parent, early = None, None
    if of_diverged:
        parent, early = run_spec(store.spec, budget={"steps": 1}), "its parent diverged: early"
        record = train(parent, store, tmp_path / "parent", CPU)
        write_json(tmp_path / "parent" / "run.json", record | {"status": "diverged", "diverged": "diverged: early"})
    real, end = training_step.loss_of, 2 * PATIENCE
    calls = iter(range(1, end + 1))

    def breaks_at_the_end(*args: Any) -> Any:
        part = real(*args)
        return training_step.MicroBatchResult(part.loss * float("nan"), part.ended) if next(calls) == end else part

    monkeypatch.setattr(training_step, "loss_of", breaks_at_the_end)
    at = {step: step / end for step in (1, end - PATIENCE, end - PATIENCE + 1)}
    run = run_spec(store.spec, parent=parent, budget={"steps": end}, snapshots=list(at.values()))
    reason = train(run, store, tmp_path / "run", CPU, tmp_path / "parent" if parent else None)["diverged"]
    assert reason.startswith("diverged: ")

    def diverged(measurement: Any, snapshot: float | None = None) -> Any:
        task = MeasurementTask(measurement=measurement, run=run, snapshot=snapshot)
        measure(task, tmp_path / "table.parquet", CPU, tmp_path / "run", store.folder)
        return read_provenance(tmp_path / "table.parquet").get("diverged")

    losses = PositionLoss(length=16, sequences=1)
    assert [diverged(losses, fraction) for fraction in (*at.values(), None)] == [early, early, reason, reason]
    assert diverged(LearningCurve(every=1)) == early, "its table says where the run itself diverged"


def test_a_measurement_that_returns_no_table_is_one_line_with_its_file(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> None:
        pass

    nothing.__module__ = "ssm.evaluation.position_loss"
    monkeypatch.setitem(MEASURES, "position_loss", nothing)
    run = run_spec(store.spec, budget={"steps": 1})
    train(run, store, tmp_path / "run", CPU)
    task = MeasurementTask(measurement=PositionLoss(length=16, sequences=1), run=run)
    with pytest.raises(
        RegistryError, match=r"^ssm/evaluation/position_loss\.py: returned NoneType, expected a DataFrame"
    ):
        measure(task, tmp_path / "table.parquet", CPU, tmp_path / "run", store.folder)
    assert not (tmp_path / "table.parquet").exists()
