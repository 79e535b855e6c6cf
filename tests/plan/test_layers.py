"""Arms that take layers of another arm's: what is planned, on a grid over the layers and from published weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import figure, write_config

from ssm.base.errors import ConfigError
from ssm.plan import Inputs, Plan, load_config, make_plan
from ssm.plan.parameters import parameter_count
from ssm.plan.resources import MEMORY_MB, needs
from ssm.specs.training import CheckpointRef

MODELS = """
deep: {d_model: 16, n_layers: 5, mixer: {kind: mamba2, d_state: 8, head_dim: 16}, peak_lr: 4e-3}
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
def folder(tmp_path: Path) -> Path:
    folder = write_config(tmp_path / "config")
    with (folder / "models.yaml").open("a") as models:
        models.write(MODELS)
    return folder


def planned(folder: Path, rehearsal: dict[str, int] | None = None, **arms: Any) -> Plan:
    measured = [{"kind": "learning_curve", "arms": [name for name in arms if name != "teacher"]}]
    drawing = {"kind": "learning_curves", "column": "loss"}
    figure(folder, "lg_fig2", arms=arms, measurements=measured, drawings=[drawing], claims=[])
    return make_plan(load_config(folder, None, ["lg_fig2"], {"rehearsal": rehearsal} if rehearsal else {}))


def test_a_grid_over_layers(folder: Path) -> None:
    plan = planned(folder, teacher=TEACHER, student=STUDENT | {"grid": {"layer": [1, 3, 5]}})
    series = {one.arm: one for one in plan.figures["lg_fig2"].series}
    teacher = plan.runs[series.pop("teacher").run]
    assert (teacher.model.n_layers, teacher.data.name) == (5, "text")
    assert list(series) == ["student[layer=1]", "student[layer=3]", "student[layer=5]"]
    for layer, one in zip((1, 3, 5), series.values(), strict=True):
        run = plan.runs[one.run]
        assert (run.model.name, run.model.n_layers, run.data.name) == ("tiny", 1, "keys")
        assert (run.parent, run.layer, one.axes, one.origin) == (teacher, layer, {"layer": layer}, teacher.id)
        assert one.label == f"Student, layer = {layer}"
        assert plan.inputs_of(run.id) == Inputs(data=run.data.id, run=teacher.id)

    few = planned(folder, {"max_steps": 2}, teacher=TEACHER, student=STUDENT | {"grid": {"layer": [1, 3, 5]}})
    assert [one.axes.get("layer") for one in few.figures["lg_fig2"].series] == [None, 1, 5]


def test_of_a_teacher_on_a_grid_students_have_a_model_of_their_own(folder: Path) -> None:
    """Who takes all weights has the parent's model, who takes layers the one that its arm names."""
    teacher = TEACHER | {"grid": {"peak_lr": [1e-3, 2e-3]}}
    plan = planned(folder, teacher=teacher, student=STUDENT | {"model": "tiny", "data": "text", "layer": 2})
    runs = [plan.runs[one.run] for one in plan.figures["lg_fig2"].series]
    assert [run.model.n_layers for run in runs] == [5, 5, 1, 1]
    assert [run.parent and run.parent.model.peak_lr for run in runs] == [None, None, 1e-3, 2e-3]


def test_published_weights_teach(folder: Path) -> None:
    teacher = {"label": "Teacher", "checkpoint": "x/y", "context": 64, "model": "deep"}
    plan = planned(folder, teacher=teacher, student=STUDENT | {"layer": 4})
    one = plan.figures["lg_fig2"].series[1]
    run = plan.runs[one.run]
    assert run.parent is not None
    assert run.parent.checkpoint == CheckpointRef(name="x/y")
    assert (run.layer, one.published) == (4, "x/y")


def test_a_job_is_given_memory_for_its_teacher(folder: Path) -> None:
    """Its weights are there twice, as they lie on disk and as a model, beside the student's own."""
    override = STUDENT["override"] | {"micro_batch_tokens": 256}  # type: ignore[operator]
    student = STUDENT | {"model": "narrow", "layer": 40, "override": override}
    plan = planned(folder, teacher=TEACHER | {"model": "vast"}, student=student)
    teacher, run = (plan.runs[one.run] for one in plan.figures["lg_fig2"].series)
    least = 4 * (2 * parameter_count(teacher.model, 256) + parameter_count(run.model, 256)) / 1e6
    for gpu in (False, True):
        assert needs(plan, load_config(folder).workflow, gpu)[run.id].memory_mb >= MEMORY_MB[gpu] + least


@pytest.mark.parametrize(
    ("student", "says"),
    [
        ({"layer": 6}, "layer: 'deep' has layers 1 to 5, not 6"),
        (
            {"layer": 2, "model": "wide"},
            "layer: layer 2 of 'deep' cannot be layer 1 of 'wide': d_model 16 there, 32 here",
        ),
        ({"layer": "own"}, "layer: 'deep' has 5 layers, 'tiny' 1; name one of them"),
    ],
)
def test_a_layer_that_does_not_fit_names_file_and_arm(folder: Path, student: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(folder, teacher=TEACHER, student=STUDENT | student)
    assert str(error.value) == f"{folder / 'figures' / 'lg_fig2.yaml'}: arms.student: {says}"


def test_a_layer_is_of_an_arm(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"arms\.student: 'layer' goes with 'from', the arm whose layer it is"):
        planned(folder, student={"label": "S", "training": "pretrain", "layer": 1})
