"""Several processes share the sequences of a measurement, and make the same table as one process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from small import run_spec
from training.processes import run_team

from ssm.base.errors import CheckpointError
from ssm.base.tables import read_table
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import SCHEMAS, MeasurementSpec
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.measurements.state_statistics import StateStatistics
from ssm.training.distributed import ProcessGroup
from ssm.training.loop import train

CPU = torch.device("cpu")
exhaustive = partial(pytest.param, marks=pytest.mark.exhaustive)


@pytest.fixture(scope="module")
def folder(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run."""
    folder = tmp_path_factory.mktemp("run")
    train(run_spec(store.spec, budget={"steps": 5}), store, folder, CPU)
    return folder


def share(group: ProcessGroup, task: MeasurementTask, out: Path, run: Path, tokens: Path) -> None:
    measure(task, out, CPU, run, tokens, group=group)


@pytest.mark.parametrize(
    "measurement",
    [
        PositionLoss(length=64, sequences=5),
        exhaustive(PositionLoss(length=64, sequences=5, shuffled=16)),
        exhaustive(RestartLoss(length=64, sequences=5, context=16)),
        exhaustive(RestartLoss(length=50, sequences=5, context=16, everywhere=True)),
        exhaustive(EffectiveRemembrance(length=32, sequences=5)),
        exhaustive(StateStatistics(length=32, sequences=5)),
        Passkey(lengths=(260, 280), depths=(0.0, 1.0), trials=2),
        StateStatistics(length=32, sequences=1),  # one process has nothing to do
    ],
    ids=lambda measurement: f"{measurement.kind}-{getattr(measurement, 'sequences', 4)}",
)
def test_two_processes_make_the_same_table_as_one(
    measurement: MeasurementSpec, folder: Path, store: TokenStore, tmp_path: Path
) -> None:
    task = MeasurementTask(measurement=measurement, run=run_spec(store.spec, budget={"steps": 5}))
    measure(task, tmp_path / "one.parquet", CPU, folder, store.folder)
    assert run_team(2, share, task, tmp_path / "two.parquet", folder, store.folder) == [0, 0]
    schema = SCHEMAS[measurement.kind]
    one, two = (read_table(tmp_path / name, schema) for name in ("one.parquet", "two.parquet"))
    numbers = [name for name, kind in one.schema.items() if kind == pl.Float64]
    assert_frame_equal(two.drop(numbers), one.drop(numbers))  # the same rows in the same order
    assert_frame_equal(two, one, rel_tol=1e-6, abs_tol=1e-7)


def refuse(group: ProcessGroup, task: MeasurementTask, out: Path, runs: list[Path], tokens: Path) -> None:
    with pytest.raises(CheckpointError, match=r"process 1 has weights .*: SPEC\.json, --run and --tokens must be"):
        measure(task, out, CPU, runs[group.rank], tokens, group=group)


def test_processes_that_read_disks_of_their_own_are_refused(folder: Path, store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 5})
    other = replace(store, manifest=store.manifest | {"corpus": {"sha256": "other"}})
    train(run, other, tmp_path / "other", CPU)
    task = MeasurementTask(measurement=PositionLoss(length=64, sequences=5), run=run)
    runs = [folder, tmp_path / "other"]
    assert run_team(2, refuse, task, tmp_path / "table.parquet", runs, store.folder) == [0, 0]
