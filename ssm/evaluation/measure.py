"""Make the table of a measurement, with its provenance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.provenance import provenance
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.base.tables import METRICS, read_provenance, read_table, write_table
from ssm.data.store import TokenStore
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.models.backbone import LanguageModel
from ssm.models.checkpoint import load_readable, snapshot_path, snapshot_step
from ssm.models.device import device_name
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.base import OfMetrics, OfModels, OfNothing, OfRecord, OfRun, OfTable, OfTask
from ssm.specs.training import RunSpec
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.metrics import PATIENCE
from ssm.training.run_record import read_record


def measure(
    task: MeasurementTask,
    out: Path,
    device: torch.device,
    run: Path | None = None,
    tokens: Path | None = None,
    table: Path | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Make the table of `task` at `out`. Several processes share the sequences, and the main process writes.

    Args:
        run: folder of the run, for measurements of a run.
        tokens: token store, for measurements of a model or of a task.
        table: table of the other measurement, for measurements from a table.

    Raises:
        ConfigError: an input that this kind of measurement needs is missing.
        CheckpointError, DataError, TableError: an input does not match the measurement.
    """
    started = time.monotonic()
    measurement, diverged, published = task.measurement, None, None
    function, schema = MEASURES[measurement.kind], measurement.table
    if not group.main and not isinstance(measurement, OfRun):
        return
    if isinstance(measurement, OfModels | OfNothing):
        frame = function(measurement, device)
    elif isinstance(measurement, OfTask):
        store = _store(task, _given(tokens, "--tokens", measurement.kind))
        frame = function(measurement, store)
    elif isinstance(measurement, OfTable):
        source = _given(table, "--table", measurement.kind)
        frame = function(measurement, read_table(source, measurement.of.table))
        diverged, published = (read_provenance(source).get(key) for key in ("diverged", "published"))
    elif isinstance(measurement, OfMetrics):
        run = _given(run, "--run", measurement.kind)
        frame, broken, diverged = _logged(task, run)
        frame, published = function(measurement, frame, broken), read_record(run).get("published")
    elif isinstance(measurement, OfRecord):
        run = _given(run, "--run", measurement.kind)
        record = _record_of(task, run)
        frame = function(measurement, record, task.run)
        diverged, published = record["diverged"], record.get("published")
    else:
        run, tokens = _given(run, "--run", measurement.kind), _given(tokens, "--tokens", measurement.kind)
        diverged, published = _divergence(run, task.snapshot), read_record(run).get("published")
        frame = function(measurement, _subject(task, run, tokens, device, group))
    origin = provenance(
        task=task.content(),
        seed=getattr(measurement, "seed", None),
        device=device_name(device),
        seconds=round(time.monotonic() - started, 3),
        **({"diverged": diverged} if diverged else {}),
        **({"published": published} if published else {}),
    )
    if group.main:
        write_table(frame, schema, out, origin)


def _subject(
    task: MeasurementTask, run: Path, tokens: Path, device: torch.device, group: ProcessGroup
) -> EvaluationContext:
    assert task.run is not None
    path = run / RUN_WEIGHTS if task.snapshot is None else snapshot_path(run, task.snapshot)
    model, trained = load_readable(path, device)
    _same_run(trained, task.run, path)
    store = _store(task, tokens)
    if isinstance(model, LanguageModel):
        model.eval()
    return EvaluationContext(model, task.run.seed, store, device, f"measure {task.id}", group)


def _store(task: MeasurementTask, tokens: Path) -> TokenStore:
    store = TokenStore.open(tokens)
    assert task.data is not None
    store.require(task.data, "the measurement")
    return store


def _logged(task: MeasurementTask, run: Path) -> tuple[pl.DataFrame, bool, str | None]:
    """Metrics up to the measured weights; whether they end with a divergence; why the parent diverged (or None)."""
    record, path = read_record(run), run / "metrics.parquet"
    assert task.run is not None
    if read_provenance(path).get("run") != task.run.content():
        raise CheckpointError(f"{path}: holds the metrics of another run, the measurement needs '{task.run.id}'")
    broken = record["status"] == "diverged"
    frame = read_table(path, METRICS)
    if task.snapshot is not None:
        step = snapshot_step(task.snapshot, record["budget_steps"])
        broken = broken and step >= record["steps"]
        frame = frame.filter(pl.col("step") <= step)
    return frame, broken, None if record["status"] == "diverged" else record["diverged"]


def _record_of(task: MeasurementTask, run: Path) -> dict[str, Any]:
    record = read_record(run)
    assert task.run is not None
    if record.get("spec") != task.run.content():
        raise CheckpointError(
            f"{run / RUN_RECORD}: is the record of another run, the measurement needs '{task.run.id}'"
        )
    return record


def _divergence(run: Path, snapshot: float | None) -> str | None:
    """Why the weights to measure are affected by a divergence; None if they are not.

    A snapshot from long enough before the divergence of its run is not affected. Descendants of a diverged run are.
    """
    record = read_record(run)
    sound_until = record["steps"] - PATIENCE if record["status"] == "diverged" else 0
    if snapshot is not None and snapshot_step(snapshot, record["budget_steps"]) <= sound_until:
        return None
    return record["diverged"]


def _same_run(trained: RunSpec, expected: RunSpec, path: Path) -> None:
    if trained != expected:
        raise CheckpointError(f"{path}: holds the run '{trained.id}', the measurement needs '{expected.id}'")


def _given(path: Path | None, option: str, kind: str) -> Path:
    if path is None:
        raise ConfigError(f"the measurement '{kind}' needs {option}")
    return path
