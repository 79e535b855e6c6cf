"""Every kind of measurement can be planned from a figure file, estimated and made, and has its schema."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from plan.mini import figure, write_config

from ssm.base.tables import METRICS, write_table
from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.evaluation import MEASURES, stream
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import build_model
from ssm.plan import load_config, make_plan
from ssm.specs.config import DryRun
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import ENTRIES, SCHEMAS
from ssm.specs.measurements import SPECS as MEASUREMENTS
from ssm.specs.measurements.base import (
    ArmsEntry,
    OfArm,
    OfMetrics,
    OfModels,
    OfNothing,
    OfRecord,
    OfRun,
    OfTable,
    OfTask,
)
from ssm.specs.measurements.of_images import OfImages

CPU = torch.device("cpu")
EXAMPLES: dict[str, dict[str, Any]] = {  # entries of a figure file
    "position_loss": {"length": 256, "sequences": 4},
    "restart_loss": {"length": 256, "sequences": 4, "everywhere": True},
    "context_loss": {"length": 256, "sequences": 4, "shortest": 16},
    "validation_loss": {"length": 256, "sequences": 4},
    "effective_remembrance": {"length": 512, "sequences": 2},
    "state_statistics": {"length": 256, "sequences": 4},
    "influence": {"length": 64, "sequences": 4, "directions": 3},
    "smoothness": {"length": 64, "sequences": 4},
    "decay_range": {"length": 64, "sequences": 4},
    "memory_length": {"length": 64, "sequences": 4},
    "state_retention": {"length": 64, "sequences": 4},
    "passkey": {"lengths": [260, 500], "depths": [0, 1], "trials": 2},
    "accuracy": {"task": "keys", "lengths": [260, 500], "examples": 8},
    "attention_map": {"task": "keys", "length": 260, "examples": 5},
    "bc_correlation": {},
    "learning_curve": {"every": 2},
    "compute": {},
    "length_class": {"of": "beside"},
    "model_size": {},
    "taxonomy": {},
    "cost": {"lengths": [4, 8, 16], "repeats": 1},
    "sample": {"length": 300, "depth": 0.5},
    "corruption": {"regions": [[0, 6], [58, 64]], "draws": 2, "examples": 8},
    "attack": {"regions": [[0, 16]], "examples": 8},
    "extrapolation_error": {"sizes": [1, 2], "windows": [1], "horizons": [2], "noises": [0.1], "descent_steps": 3},
    "overflow": {"formats": ["float32"], "arithmetics": ["torch", "loop"], "halvings": [3], "shares": [0, 0.5, 2]},
}

PASSES = {
    "influence": 1 + 2 * 3,
    "smoothness": 3,
    "attention_map": 2,
    "state_retention": 2,
}  # passes through the layers for each token


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(MEASUREMENTS) == set(MEASURES)


def test_every_table_has_the_name_of_its_kind() -> None:
    assert {kind: schema.name for kind, schema in SCHEMAS.items()} == {kind: kind for kind in MEASUREMENTS}


def planned(tmp_path: Path, kind: str, caps: DryRun | None = None) -> MeasurementTask:
    """The task from a figure with one arm, which also has the measurement that an `OfTable` needs."""
    entries: list[dict[str, Any]] = [{"kind": kind, **EXAMPLES[kind]}]
    spec = MEASUREMENTS[kind]
    if issubclass(spec, OfTable):
        made_from: Any = spec.model_fields["of"].annotation
        source = made_from.model_fields["kind"].default
        entries.append({"kind": source, "name": "beside", **EXAMPLES[source]})
    folder = write_config(tmp_path / "config")
    names: dict[str, Any] = {"data": "keys", "arms": {}} if issubclass(spec, OfTask) else {}
    base: dict[str, Any] = {"label": "B", "training": "pretrain"}
    if issubclass(spec, OfImages):
        names, base = {"data": "digits"}, base | {"override": {"context": 65, "batch_tokens": 130}}
    figure(folder, "lg_fig5", **({"arms": {"base": base}, "measurements": entries} | names))
    overrides = {} if caps is None else {"dry_run": caps.content()}
    plan = make_plan(load_config(folder, figures=["lg_fig5"], overrides=overrides))
    (task,) = (task for task in plan.measurements.values() if task.measurement.kind == kind)
    return task


@pytest.mark.parametrize("kind", EXAMPLES)
def test_it_can_be_planned_estimated_and_made(
    kind: str, ctx: EvaluationContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: the seed of the run and that of the measurement choose what is read."""
    task = planned(tmp_path, kind)
    measurement, read = task.measurement, list[torch.Tensor]()
    assert MeasurementTask.parse(task.content(), "itself") == task
    if isinstance(measurement, OfImages):
        assert task.run is not None
        build_store(task.run.data, tmp_path / "images", workers=1)
        model: Any = build_model(task.run.model, 10, 1, channels=1).eval()
        ctx = replace(ctx, model=model, store=TokenStore.open(tmp_path / "images"))
    model = ctx.model
    embedded = model.embedded

    def counted(tokens: torch.Tensor) -> Any:
        read.append(tokens)
        return embedded(tokens)

    monkeypatch.setattr(model, "embedded", counted)
    monkeypatch.setattr(stream, "_state_bytes", lambda *_: 1)  # it reads further tokens
    given: Any = ctx
    if isinstance(measurement, OfModels | OfNothing):
        given = CPU
    elif isinstance(measurement, OfTask):
        build_store(measurement.task, tmp_path / "tokens", workers=1)
        given = TokenStore.open(tmp_path / "tokens")
    elif isinstance(measurement, OfTable):
        given = MEASURES[measurement.of.kind](measurement.of, ctx)
        read.clear()
    elif isinstance(measurement, OfMetrics):
        steps = {"step": [1, 2, 3, 4], "tokens": [8, 16, 24, 32]}
        given = pl.DataFrame(steps | dict.fromkeys(METRICS.columns.keys() - steps.keys(), 1.0), METRICS.columns)
    elif isinstance(measurement, OfRecord):
        given = {"tokens": 128, "seconds": 0.5}
    more = [False] if isinstance(measurement, OfMetrics) else [task.run] if isinstance(measurement, OfRecord) else []
    frame = MEASURES[kind](measurement, given, *more)
    assert isinstance(frame, pl.DataFrame)
    write_table(frame, SCHEMAS[kind], tmp_path / "t.parquet", {})  # checks the schema
    assert set(SCHEMAS[kind].keys) < set(frame.columns)
    work = measurement.work(task.run)
    if isinstance(measurement, OfRun):
        assert task.run is not None
        tokens = PASSES.get(kind, 1) * sum(part.shape[:2].numel() for part in read)
        assert sum(part.tokens for part in work) == pytest.approx(tokens, rel=0.1)
        rows = measurement.rows(ctx.model.spec)  # type: ignore[attr-defined]
        assert rows == pytest.approx(frame.height, rel=0.1) if rows else frame.height < 1000
        if read:
            first = torch.cat([part.flatten() for part in read])
            other = measurement.model_copy(update={"seed": measurement.seed + 1})  # type: ignore[attr-defined]
            for spec, subject in ((measurement, replace(ctx, seed=ctx.seed + 1)), (other, ctx)):
                read.clear()
                MEASURES[kind](spec, subject)
                assert not torch.equal(torch.cat([part.flatten() for part in read]), first)
    else:
        assert read == []
    assert all(part.tokens > 0 and part.length > 0 for part in work)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_dry_run_reads_less(kind: str, tmp_path: Path) -> None:
    least = DryRun(max_sequences=4, max_contexts=1)
    whole, capped = planned(tmp_path, kind), planned(tmp_path, kind, least)
    work = [sum(part.tokens for part in task.measurement.work(task.run)) for task in (whole, capped)]
    assert work[1] < work[0] or work == [0, 0]


def test_only_entries_of_arms_can_name_arms() -> None:
    for spec, entry in zip(MEASUREMENTS.values(), ENTRIES, strict=True):
        assert issubclass(entry, ArmsEntry) == issubclass(spec, OfArm), spec
