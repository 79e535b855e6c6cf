"""The search for the numbers of a repair, and the run that it makes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_store, model_spec, run_spec, save_model

from ssm.base.errors import CheckpointError, ConfigError, DataError
from ssm.base.tables import read_table
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.evaluation.repairing import ChoiceLoss, best_trial, repair_run, search
from ssm.models.backbone import build_model
from ssm.models.repairs import repaired, repaired_copy
from ssm.models.weights_file import load_model, load_readable, load_tensors, save_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.compute import Compute
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.repairs import SPECS
from ssm.specs.repairs.base import Point, Repair
from ssm.specs.repairs.clip_dt import ClipDt
from ssm.specs.repairs.reset_state import ResetState
from ssm.specs.repairs.restarts import Restarts
from ssm.specs.repairs.scale_a import ScaleA
from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.loop import train

CPU = torch.device("cpu")
FEW: dict[str, Any] = {"sequences": 2, "times_context": 4.0}
REPAIRS: dict[str, Repair] = {
    "scale_a": ScaleA(by="layer", factors=(2.0, 30.0), **FEW),
    "clip_dt": ClipDt(limits=(0.001, 0.03), **FEW),
    "reset_state": ResetState(every=(0.5, 1.0), keeps=(0.0, 0.5), **FEW),
    "restarts": Restarts(every=(1.0, 0.25), window=1, **FEW),
}


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A token store with documents that are set aside."""
    return make_store(tmp_path_factory.mktemp("aside"), choice=0.3)


@pytest.fixture(scope="module")
def parent(aside: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, Path]:
    """A trained run, and its folder."""
    run, folder = run_spec(aside.spec, budget={"steps": 3}), tmp_path_factory.mktemp("parent")
    train(run, aside, folder, CPU)
    return run, folder


def repair_of(parent: RunSpec, repair: Repair) -> RunSpec:
    training = TrainingSpec.of_zero_steps(parent.training.context, "tests")
    return RunSpec(model=parent.model, data=parent.data, training=training, seed=3, parent=parent, repair=repair)


def test_each_axis_starts_from_the_best_point_so_far() -> None:
    """The best value for both layers is 8. Then 2 is better in the first layer, and no value in the second."""
    model, repair = build_model(model_spec(), 256, 1), ScaleA(by="layer", factors=(2.0, 8.0))
    before = [layer.mixer.A_log.detach().clone() for layer in model.layers]  # type: ignore[union-attr, operator]

    def loss(point: Point) -> float:
        read: Any = repaired_copy(model, repair, point)
        moved = [
            round(float((layer.mixer.A_log.detach() - was).exp().mean()))
            for layer, was in zip(read.layers, before, strict=True)
        ]
        return {(1, 1): 9.0, (2, 2): 8.0, (8, 8): 7.0, (1, 8): 7.5, (2, 8): 3.0, (2, 1): 3.0}[tuple(moved)]  # type: ignore[index]

    trials = search(repair, model.spec, 32, loss)
    points = [trial.point for trial in trials]
    assert points == [(None, None), (2.0, 2.0), (8.0, 8.0), (None, 8.0), (2.0, 8.0), (2.0, None)]
    assert best_trial(trials).point == (2.0, 8.0), "the first of equal trials"
    assert all(torch.equal(layer.mixer.A_log, was) for layer, was in zip(model.layers, before, strict=True))  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", REPAIRS)
def test_the_search_reads_no_more_than_planned(kind: str) -> None:
    """A point is not tried twice."""
    model, repair, read = model_spec(), REPAIRS[kind], list[Point]()
    trials = search(repair, model, 16, lambda point: read.append(point) or float(len(read)))  # type: ignore[func-returns-value]
    once = repair.sequences * 64
    assert len(trials) == len({trial.point for trial in trials}) == len(read)
    assert len(trials) >= 2
    assert once * (1 + (len(trials) - 1) * repair.passes) <= repair.tokens_read(model, 16)
    assert best_trial(trials).point == repair.start(model), "a repair that does not help is not applied"


@pytest.mark.parametrize("kind", REPAIRS)
def test_the_run_is_the_repaired_parent(
    kind: str, aside: TokenStore, parent: tuple[RunSpec, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the best point."""
    run, trained = repair_of(parent[0], REPAIRS[kind]), parent[1]
    losses = iter([3.0, 5.0, 2.0, *[math.inf] * 9])
    monkeypatch.setattr(ChoiceLoss, "__call__", lambda *_: next(losses))
    record = repair_run(run, aside, tmp_path / "run", CPU, trained)
    assert json.loads((tmp_path / "run/run.json").read_text()) == record
    assert repair_run(run, aside, tmp_path / "run", CPU, trained) == record, "a second call tries nothing"
    assert (record["steps"], record["tokens"], record["status"]) == (0, 0, "finished")
    point = tuple(record["chosen"])
    assert record["trials"][2] == {"at": list(point), "loss": 2.0}
    found, spec = load_readable(tmp_path / "run/model.safetensors")
    assert spec == run
    text = torch.arange(40).view(1, 40)
    own = load_model(trained / "model.safetensors")[0].eval()
    plain = own.hidden(text)[0]
    wanted = repaired(own, REPAIRS[kind], point).hidden(text)[0]
    assert torch.equal(found.hidden(text)[0], wanted)
    assert not torch.allclose(wanted, plain)
    if run.repair is not None and run.repair.in_reading:
        with pytest.raises(
            CheckpointError, match=f"'{kind}' is a way of reading a model, not a model that can be trained"
        ):
            load_model(tmp_path / "run/model.safetensors")


def test_a_repaired_run_can_be_measured(aside: TokenStore, parent: tuple[RunSpec, Path], tmp_path: Path) -> None:
    run = repair_of(parent[0], REPAIRS["restarts"])
    record = repair_run(run, aside, tmp_path / "run", CPU, parent[1])
    assert record["tokens_read"] == (1 + 2 * 3) * 2 * 64, "two windows: unchanged model, two trials of three states"
    assert run.repair is not None
    passes = 1 if tuple(record["chosen"]) == run.repair.start(run.model) else 3
    expected = {"repair": (1, 0, 896, 896, passes), "trained": (0, 192, 0, 576, 1)}
    for name, measured, folder in (("repair", run, tmp_path / "run"), ("trained", parent[0], parent[1])):
        measure(MeasurementTask(measurement=Compute(), run=measured), tmp_path / f"{name}.parquet", CPU, folder)
        row = read_table(tmp_path / f"{name}.parquet").select("stage", "trained", "read", "forward", "passes").row(0)
        assert row == expected[name]
    task = MeasurementTask(measurement=PositionLoss(length=64, sequences=2), run=run)
    measure(task, tmp_path / "loss.parquet", CPU, tmp_path / "run", aside.folder)
    assert read_table(tmp_path / "loss.parquet")["loss"].is_finite().all()
    with pytest.raises(CheckpointError, match="is the record of another run, the measurement needs"):
        measure(MeasurementTask(measurement=Compute(), run=run), tmp_path / "x.parquet", CPU, parent[1])


def test_trials_read_only_text_that_is_set_aside(aside: TokenStore, parent: tuple[RunSpec, Path]) -> None:
    run = repair_of(parent[0], REPAIRS["scale_a"])
    choice_loss = ChoiceLoss(run, aside, CPU)
    assert choice_loss.windows.split is aside.choice
    assert run.repair is not None
    for other in ({"seed": run.seed + 1}, {"repair": run.repair.model_copy(update={"seed": run.repair.seed + 1})}):
        windows = ChoiceLoss(run.model_copy(update=other), aside, CPU).windows
        assert windows.positions.tolist() != choice_loss.windows.positions.tolist()
    model = build_model(model_spec(), 256, 1).eval()
    loss = choice_loss(model)
    text, targets = choice_loss.windows.read(slice(None), 0, 64)
    with torch.no_grad():
        logits = model(text)[0]
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert loss == pytest.approx(float(wanted), 1e-6)
    torch.nn.init.constant_(model.norm.weight, math.nan)
    assert choice_loss(model) == math.inf


def change_header(change: Callable[[dict[str, Any]], object], path: Path) -> None:
    tensors, header = load_tensors(path)
    change(header)
    save_tensors(path, tensors, header)


@pytest.mark.parametrize("change", [lambda header: header.pop("chosen"), lambda header: header["chosen"].append(1.0)])
def test_missing_numbers_are_refused(
    change: Callable[[dict[str, Any]], object], parent: tuple[RunSpec, Path], tmp_path: Path
) -> None:
    model, path = load_model(parent[1] / "model.safetensors")[0], tmp_path / "model.safetensors"
    run = repair_of(parent[0], REPAIRS["clip_dt"])
    save_model(path, model, run, 0, "x")
    change_header(lambda header: header.update(chosen=[0.1, None]), path)
    load_model(path)
    change_header(change, path)
    with pytest.raises(CheckpointError, match="its header has no valid numbers of the repair 'clip_dt'"):
        load_model(path)


def test_wrong_parents_and_settings_are_refused(
    aside: TokenStore, store: TokenStore, parent: tuple[RunSpec, Path], tmp_path: Path
) -> None:
    run = repair_of(parent[0], REPAIRS["scale_a"])
    other = repair_of(parent[0].model_copy(update={"seed": 9}), REPAIRS["scale_a"])
    with pytest.raises(CheckpointError, match=r"holds the run '.*', expected '.*'"):
        repair_run(other, aside, tmp_path / "a", CPU, parent[1])
    with pytest.raises(CheckpointError, match=r"starts from '.*': give its folder as --parent"):
        repair_run(run, aside, tmp_path / "a", CPU, None)
    long = repair_of(parent[0], ScaleA(sequences=2, times_context=2500.0))
    with pytest.raises(DataError, match=r"needs 40001; .*or set more aside with 'choice'"):
        repair_run(long, aside, tmp_path / "b", CPU, parent[1])
    plain = run_spec(store.spec)
    for wrong, message in (
        ({"data": store.spec, "parent": plain}, "has none: give it 'choice'"),
        ({"parent": None}, "needs a parent, all of its weights, and training.budget.steps 0"),
        ({"training": parent[0].training}, "needs a parent, all of its weights, and training.budget.steps 0"),
        ({"training": TrainingSpec.of_zero_steps(32, "tests")}, "a repair has the context of its parent, 16"),
        ({"parent": run}, r"starts from a repaired model \(scale_a\); name a trained model"),
    ):
        with pytest.raises(ConfigError, match=message):
            RunSpec.parse(dict(run) | wrong, "tests")


def test_every_repair_has_an_example() -> None:
    assert set(REPAIRS) == set(SPECS)
