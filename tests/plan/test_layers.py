"""Arms that take a layer of another arm (its teacher)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import figure

from ssm.base.errors import ConfigError
from ssm.plan import Inputs, Plan, load_config, make_plan
from ssm.plan.parameters import parameter_count
from ssm.plan.resources import MEMORY_MB, needs
from ssm.specs.training import CheckpointRef

MODELS = """
deep: {d_model: 16, n_layers: 5, mixer: {kind: mamba2, d_state: 8, head_dim: 16}, peak_lr: 4e-3}
partly:
  {d_model: 16, n_layers: 5, mixer: {kind: mamba2, d_state: 8, head_dim: 16},
   ffn_at: {1: {kind: mlp, d_hidden: 8}}, peak_lr: 4e-3}
wide: {d_model: 32, n_layers: 5, mixer: {kind: mamba2, d_state: 8, head_dim: 16}, peak_lr: 4e-3}
vast: {d_model: 2048, n_layers: 40, mixer: {kind: mamba2}, peak_lr: 4e-3}
narrow: {d_model: 2048, n_layers: 1, mixer: {kind: mamba2}, peak_lr: 4e-3}
"""
TEACHER = {"label": "Teacher", "training": "pretrain", "model": "deep"}
STUDENT = {
    "label": "Student",
    "from": "teacher",
    "training": "posttrain",
    "data": "keys",
    "override": {"context": 256, "batch_tokens": 256},
}


@pytest.fixture
def folder(folder: Path) -> Path:
    with (folder / "models.yaml").open("a") as models:
        models.write(MODELS)
    return folder


def planned(folder: Path, dry_run: dict[str, int] | None = None, **arms: Any) -> Plan:
    measured = [{"kind": "learning_curve", "arms": [name for name in arms if name != "teacher"]}]
    plot = {"kind": "learning_curves", "column": "loss"}
    figure(folder, "lg_fig2", arms=arms, measurements=measured, drawings=[plot], claims=[])
    return make_plan(load_config(folder, None, ["lg_fig2"], {"dry_run": dry_run} if dry_run else {}))


def labeled(arms: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: arm | {"label": name} for name, arm in arms.items()}


def test_a_grid_over_layers(folder: Path) -> None:
    plan = planned(folder, teacher=TEACHER, student=STUDENT | {"grid": {"layer": [1, 3, 5]}})
    series = {one.arm: one for one in plan.figures["lg_fig2"].series}
    teacher = plan.runs[series.pop("teacher").run]
    assert (teacher.model.n_layers, teacher.data.name) == (5, "text")
    assert list(series) == ["student[layer=1]", "student[layer=3]", "student[layer=5]"]
    for layer, one in zip((1, 3, 5), series.values(), strict=True):
        run = plan.runs[one.run]
        assert (run.model.name, run.model.n_layers, run.data.name) == ("tiny", 1, "keys")
        assert (run.parent, run.layer, one.axes) == (teacher, layer, {"layer": layer})
        assert one.label == f"Student, layer = {layer}"
        assert plan.inputs[run.id] == Inputs(data=run.data.id, run=teacher.id)

    few = planned(folder, {"max_steps": 2}, teacher=TEACHER, student=STUDENT | {"grid": {"layer": [1, 3, 5]}})
    assert [one.axes.get("layer") for one in few.figures["lg_fig2"].series] == [None, 1, 5]


def test_students_of_a_teacher_on_a_grid_have_their_own_model_and_data(folder: Path) -> None:
    """An arm that takes all weights has the parent's model and data. An arm that takes a layer does not."""
    plain = {key: value for key, value in STUDENT.items() if key != "data"}
    teacher = TEACHER | {"data": "keys", "override": plain["override"], "grid": {"peak_lr": [1e-3, 2e-3]}}
    arms = {"student": plain | {"layer": 2}, "named": STUDENT | {"model": "deep", "layer": 2}, "tuned": plain}
    plan = planned(folder, teacher=teacher, **labeled(arms))
    for one in plan.figures["lg_fig2"].series:
        run = plan.runs[one.run]
        own = (1, "text") if one.family == "student" else (5, "keys")
        assert (run.model.n_layers, run.data.name) == own, one.arm
        assert (run.parent or run).model.peak_lr == one.axes["peak_lr"]
        if one.family == "named":
            assert run.model.name == "deep"


def test_students_of_a_teacher_on_a_grid_of_shapes_need_the_same_axis(folder: Path) -> None:
    teacher = TEACHER | {"grid": {"d_state": [8, 16]}}
    file = folder / "figures" / "lg_fig2.yaml"
    with pytest.raises(ConfigError) as error:
        planned(folder, teacher=teacher, student=STUDENT | {"layer": 2})
    assert str(error.value) == (
        f"{file}: arms.student[d_state=16]: layer: layer 2 of 'deep[d_state=16]' cannot be layer 1 of 'tiny': "
        "mixer.d_state 16 there, 8 here"
    )
    plan = planned(folder, teacher=teacher, student=STUDENT | {"layer": 2, "grid": {"d_state": [8, 16]}})
    names = [plan.runs[one.run].model.name for one in plan.figures["lg_fig2"].series]
    assert names == ["deep", "deep[d_state=16]", "tiny", "tiny[d_state=16]"]


def test_students_start_from_the_same_weights_if_layer_and_model_are_the_same(folder: Path) -> None:
    """Arms with the same start are compared over sequences, other arms over seeds."""
    teacher = STUDENT | {"from": None, "model": "deep", "training": "pretrain"}
    arms = {
        "first": STUDENT | {"layer": 1},
        "again": STUDENT | {"layer": 1, "initial_state": "state_passing"},
        "on": STUDENT | {"from": "first"},
        "sixth": STUDENT | {"layer": 5},
        "deep": STUDENT | {"layer": 1, "model": "deep"},
        "own": STUDENT | {"layer": "own", "model": "deep"},
        "tuned": STUDENT | {"model": "deep"},
        "after": STUDENT | {"from": "tuned", "model": "deep"},
        "later": STUDENT | {"from": "tuned", "layer": 1},
    }
    task = planned(folder, **labeled({"teacher": teacher, **arms})).figures["lg_fig2"]
    origin = {one.arm: one.origin or one.run for one in task.series}
    assert origin["first"] == origin["again"] == origin["on"]
    assert origin["teacher"] == origin["tuned"] == origin["after"]
    assert origin["later"] != origin["first"], "the same layer, after more training"
    assert len(set(origin.values())) == 6


def test_published_weights_can_be_a_teacher(folder: Path) -> None:
    teacher = {"label": "Teacher", "checkpoint": "x/y", "context": 64, "model": "deep"}
    plan = planned(folder, teacher=teacher, student=STUDENT | {"layer": 4})
    one = plan.figures["lg_fig2"].series[1]
    run = plan.runs[one.run]
    assert run.parent is not None
    assert run.parent.checkpoint == CheckpointRef(name="x/y")
    assert (run.layer, one.published) == (4, "x/y")


def test_a_job_asks_for_the_memory_of_its_teacher(folder: Path) -> None:
    """The teacher's weights are in memory twice, as in the file and as a model, together with the student's.

    A run that diverges needs them again, together with all memory of training.
    """
    override = STUDENT["override"] | {"micro_batch_tokens": 256}  # type: ignore[operator]
    student = STUDENT | {"model": "narrow", "layer": 40, "override": override}
    alone = {key: value for key, value in student.items() if key not in ("from", "layer")}
    plan = planned(folder, teacher=TEACHER | {"model": "vast"}, student=student, alone=alone | {"label": "Alone"})
    teacher, run, fresh = (plan.runs[one.run] for one in plan.figures["lg_fig2"].series)
    least = 4 * (2 * parameter_count(teacher.model, 256) + parameter_count(run.model, 256)) / 1e6
    for gpu in (False, True):
        found = needs(plan, load_config(folder).workflow, gpu)
        assert found[fresh.id].memory_mb > MEMORY_MB[gpu]
        assert found[run.id].memory_mb - found[fresh.id].memory_mb == pytest.approx(least, abs=1)


@pytest.mark.parametrize(
    ("student", "says"),
    [
        ({"layer": 6}, "layer: 'deep' has layers 1 to 5, not 6"),
        (
            {"layer": 2, "model": "wide"},
            "layer: layer 2 of 'deep' cannot be layer 1 of 'wide': d_model 16 there, 32 here",
        ),
        ({"layer": "own"}, "layer: 'deep' has 5 layers, 'tiny' 1; name one of them"),
        (
            {"layer": "own", "model": "partly"},
            "layer: layer 2 of 'deep' cannot be layer 2 of 'partly': ffn None there, 'mlp' here",
        ),
    ],
)
def test_a_layer_that_does_not_fit_names_file_and_arm(folder: Path, student: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(folder, teacher=TEACHER, student=STUDENT | student)
    assert str(error.value) == f"{folder / 'figures' / 'lg_fig2.yaml'}: arms.student: {says}"


def test_a_layer_needs_a_parent(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"arms\.student: 'layer' needs 'from', the arm whose layer is copied"):
        planned(folder, student={"label": "S", "training": "pretrain", "layer": 1})
