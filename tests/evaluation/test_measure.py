"""The provenance of a table says whether its weights are affected by a divergence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small import run_spec

import ssm.training.step as training_step
from ssm.base.tables import read_provenance
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.training.loop import train
from ssm.training.metrics import PATIENCE

CPU = torch.device("cpu")


def test_only_snapshots_from_long_before_a_divergence_are_unaffected(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, end = training_step.loss_of, 2 * PATIENCE
    calls = iter(range(1, end + 1))

    def breaks_at_the_end(*args: Any) -> Any:
        part = real(*args)
        return training_step.MicroBatchResult(part.loss * float("nan"), part.ended) if next(calls) == end else part

    monkeypatch.setattr(training_step, "loss_of", breaks_at_the_end)
    at = {step: step / end for step in (1, end - PATIENCE, end - PATIENCE + 1)}
    run = run_spec(store.spec, budget={"steps": end}, snapshots=list(at.values()))
    reason = train(run, store, tmp_path, CPU)["diverged"]
    assert reason

    def diverged(snapshot: float | None) -> Any:
        task = MeasurementTask(measurement=PositionLoss(length=16, sequences=1), run=run, snapshot=snapshot)
        measure(task, tmp_path / "table.parquet", CPU, tmp_path, store.folder)
        return read_provenance(tmp_path / "table.parquet").get("diverged")

    assert [diverged(fraction) for fraction in (*at.values(), None)] == [None, None, reason, reason]
