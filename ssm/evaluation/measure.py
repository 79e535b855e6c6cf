"""Make the table of a measurement, with its provenance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ssm.base.checksum import stored_checksum
from ssm.base.discovery import RegistryError, file_of
from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.provenance import provenance
from ssm.base.records import RUN_METRICS, RUN_RECORD, RUN_WEIGHTS
from ssm.base.tables import METRICS, read_any, write_table
from ssm.data.store import TokenStore
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.models.backbone import LanguageModel
from ssm.models.device import device_name
from ssm.models.weights_file import load_readable, snapshot_path, snapshot_step
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.base import OfMetrics, OfModels, OfNothing, OfRecord, OfRun, OfTable, OfTask
from ssm.specs.training import RunSpec
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.lineage import origin_of
from ssm.training.run_record import divergence, parents_divergence, read_record


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
    if not group.main and not isinstance(task.measurement, OfRun):
        return
    frame, weights = _frame(task, device, run, tokens, table, group)
    if not isinstance(frame, pl.DataFrame):  # of a function that somebody added
        place = file_of(MEASURES[task.measurement.kind].__module__)
        raise RegistryError(f"{place}: returned {type(frame).__name__}, expected a DataFrame")
    origin = provenance(
        task=task.content(),
        seed=getattr(task.measurement, "seed", None),
        device=device_name(device),
        seconds=round(time.monotonic() - started, 3),
        **{key: value for key, value in weights.items() if value},
    )
    if group.main:
        write_table(frame, task.measurement.table, out, origin)


def _frame(
    task: MeasurementTask,
    device: torch.device,
    run: Path | None,
    tokens: Path | None,
    table: Path | None,
    group: ProcessGroup,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The table, and what its provenance says about the measured weights: a divergence, and their published source."""
    measurement, kind = task.measurement, task.measurement.kind
    function = MEASURES[kind]
    if isinstance(measurement, OfModels | OfNothing):
        return function(measurement, device), {}
    if isinstance(measurement, OfTask):
        return function(measurement, _store(task, _require_input(tokens, "--tokens", kind))), {}
    if isinstance(measurement, OfTable):
        source = _require_input(table, "--table", kind)
        schema = measurement.of.table
        frame, _, origin = read_any(source, {schema.name: schema})
        return function(measurement, frame), {key: origin.get(key) for key in ("diverged", "published")}
    run = _require_input(run, "--run", kind)
    if isinstance(measurement, OfMetrics):
        record = read_record(run)
        frame = function(measurement, *_metrics(task, run, record))
        diverged = parents_divergence(record)
    elif isinstance(measurement, OfRecord):
        record = _record(task, run)
        frame, diverged = function(measurement, record, task.run), record["diverged"]
    else:
        tokens, record = _require_input(tokens, "--tokens", kind), read_record(run)
        diverged = divergence(record, task.snapshot)
        frame = function(measurement, _context(task, run, tokens, device, group))
    return frame, {"diverged": diverged, "published": record.get("published")}


def _context(
    task: MeasurementTask, run: Path, tokens: Path, device: torch.device, group: ProcessGroup
) -> EvaluationContext:
    assert task.run is not None
    path = run / RUN_WEIGHTS if task.snapshot is None else snapshot_path(run, task.snapshot)
    model, trained = load_readable(path, device)
    _require_run(trained, task.run, path)
    store = _store(task, tokens)
    read = {"measurement": task.id, "weights": stored_checksum(path), "text": origin_of(store, None)}
    group.require_same("SPEC.json, --run and --tokens", **read)
    if isinstance(model, LanguageModel):
        model.eval()
    return EvaluationContext(model, task.run.seed, store, device, f"measure {task.id}", group)


def _store(task: MeasurementTask, tokens: Path) -> TokenStore:
    store = TokenStore.open(tokens)
    assert task.data is not None
    store.require(task.data, "the measurement")
    return store


def _metrics(task: MeasurementTask, run: Path, record: dict[str, Any]) -> tuple[pl.DataFrame, bool]:
    """Metrics up to the measured weights, and whether they end with a divergence."""
    path = run / RUN_METRICS
    assert task.run is not None
    frame, _, origin = read_any(path, {METRICS.name: METRICS})
    if origin.get("run") != task.run.content():
        raise CheckpointError(f"{path}: holds the metrics of another run, the measurement needs '{task.run.id}'")
    broken = record["status"] == "diverged"
    if task.snapshot is not None:
        step = snapshot_step(task.snapshot, record["budget_steps"])
        broken = broken and step >= record["steps"]
        frame = frame.filter(pl.col("step") <= step)
    return frame, broken


def _record(task: MeasurementTask, run: Path) -> dict[str, Any]:
    record = read_record(run)
    assert task.run is not None
    if record.get("spec") != task.run.content():
        raise CheckpointError(
            f"{run / RUN_RECORD}: is the record of another run, the measurement needs '{task.run.id}'"
        )
    return record


def _require_run(trained: RunSpec, expected: RunSpec, path: Path) -> None:
    if trained != expected:
        raise CheckpointError(f"{path}: holds the run '{trained.id}', the measurement needs '{expected.id}'")


def _require_input(path: Path | None, option: str, kind: str) -> Path:
    if path is None:
        raise ConfigError(f"the measurement '{kind}' needs {option}")
    return path
