"""Tasks in the plan, with their data and measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.figures.figure import ArmEntry
from ssm.plan import Inputs, Plan, load_config, make_plan
from ssm.plan.resources import needs
from ssm.plan.sources import source_files
from ssm.plan.summary import summary
from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.measurements.sample import Sample
from ssm.specs.tasks.copy import CopyTask
from ssm.specs.tasks.passkey import PasskeyTask

TASKS = """
copy: {task: copy, alphabet: {smoke: 12, paper: 26}, mix: [{shortest: 5, longest: {smoke: 10, paper: 100}}]}
passkey: {task: passkey, mix: [{length: 256}]}
facts: {task: facts, corpus: {kind: stdlib}, mix: [{length: 300}]}
"""
ARMS = {
    "base": {"label": "Base", "training": "pretrain"},
    "sp": {"label": "SP", "training": "pretrain", "initial_state": "state_passing"},
}


@pytest.fixture
def folder(folder: Path) -> Path:
    data = folder / "data.yaml"
    data.write_text(data.read_text() + TASKS)
    return folder


def planned(folder: Path, **changes: Any) -> Plan:
    figure(folder, "lg_tab1", **({"data": "copy", "arms": ARMS, "measurements": []} | changes))
    return make_plan(load_config(folder, figures=["lg_tab1"]))


def test_a_figure_of_a_task(folder: Path) -> None:
    plan = planned(folder, measurements=[{"kind": "accuracy", "lengths": [10, 30], "examples": 64}])
    (data,) = plan.data.values()
    assert isinstance(data, CopyTask)
    assert source_files(data) == ()
    assert len(plan.runs) == 2
    for name, task in plan.measurements.items():
        measurement = task.measurement
        assert isinstance(measurement, Accuracy)
        assert (measurement.task, measurement.lengths, measurement.examples) == (data, (10, 30), 64)
        assert plan.inputs[name] == Inputs(data=data.id, run=task.run and task.run.id)
    library = load_config(folder, figures=["lg_tab1"])
    found = needs(plan, library.workflow, gpu=False)
    assert found[data.id].disk_mb == 0, "nothing is stored"
    few = planned(folder, measurements=[{"kind": "accuracy", "lengths": [10], "examples": 4}])
    less = needs(few, library.workflow, gpu=False)
    assert found[next(iter(plan.measurements))].seconds > less[next(iter(few.measurements))].seconds
    plan = planned(folder, measurements=[{"kind": "accuracy", "lengths": [10, 30]}])
    assert "lg_tab1" in summary(plan, library.workflow, gpus=1)


def test_fine_tuning_on_a_task_from_text(folder: Path) -> None:
    """The base is also measured on the task."""
    fine = {"label": "Fine-tuned", "from": "base", "training": "posttrain", "data": "passkey"}
    fine["override"] = {"context": 256, "batch_tokens": 512}
    entries = [
        {"kind": "accuracy", "task": "passkey", "lengths": [256, 512]},
        {"kind": "accuracy", "task": "facts", "name": "facts", "arms": ["fine"]},
        {"kind": "position_loss", "times_context": 2, "arms": ["base"]},
    ]
    plan = planned(folder, data="text", arms={"base": ARMS["base"], "fine": fine}, measurements=entries)
    assert sorted(plan.data) == sorted({data.id for data in plan.data.values()})
    assert sorted(data.name for data in plan.data.values()) == ["facts", "passkey", "text"]
    base, tuned = plan.runs.values()
    assert (base.data.name, tuned.data.name) == ("text", "passkey")
    assert tuned.parent == base
    assert tuned.content()["parent"] == base.content()
    series = {one.arm: one.tables for one in plan.figures["lg_tab1"].series}
    for arm, run in (("base", base), ("fine", tuned)):
        measured = plan.measurements[series[arm]["accuracy"]].measurement
        assert isinstance(measured, Accuracy)
        assert isinstance(measured.task, PasskeyTask)
        assert plan.inputs[series[arm]["accuracy"]] == Inputs(data=tuned.data.id, run=run.id)
    facts = plan.measurements[series["fine"]["facts"]]
    assert facts.data is not None
    assert plan.inputs[series["fine"]["facts"]].data == facts.data.id
    needs(plan, load_config(folder).workflow, gpu=True)


def test_the_text_of_a_measurement_has_a_name(folder: Path) -> None:
    """A model that was fine-tuned on a task is measured on the text of its parent, in its own contexts."""
    fine = {"label": "Fine-tuned", "from": "base", "training": "posttrain", "data": "passkey"}
    fine["override"] = {"context": 256, "batch_tokens": 512}
    entries = [{"kind": kind, "times_context": 4, "text": "text"} for kind in ("position_loss", "restart_loss")]
    plan = planned(folder, data="text", arms={"base": ARMS["base"], "fine": fine}, measurements=entries)
    base, tuned = plan.runs.values()
    series = {one.arm: one.tables for one in plan.figures["lg_tab1"].series}
    for kind in ("position_loss", "restart_loss"):
        table = series["fine"][kind]
        assert plan.inputs[table] == Inputs(data=base.data.id, run=tuned.id)
        assert plan.measurements[table].measurement.length == 1024  # type: ignore[union-attr]
    for entry in entries:
        del entry["text"]
    same = planned(folder, data="text", arms={"base": ARMS["base"]}, measurements=entries)
    assert set(same.measurements) == set(series["base"].values()), "the same table as without the name"


def test_a_dry_run_is_short(folder: Path) -> None:
    figure(
        folder,
        "lg_tab1",
        data="facts",
        arms={"base": ARMS["base"] | {"override": {"context": 512, "batch_tokens": 1024}}},
        measurements=[
            {"kind": "accuracy", "lengths": [300, 40_000]},
            {"kind": "accuracy", "task": "facts", "name": "b"},
        ],
    )
    plan = make_plan(load_config(folder, figures=["lg_tab1"], overrides={"dry_run": {}}))
    (data,) = plan.data.values()
    assert data.text is not None
    assert data.text.max_documents == 40
    lengths = {task.measurement.lengths for task in plan.measurements.values()}  # type: ignore[union-attr]
    assert lengths == {(300,), None}
    assert {task.measurement.examples for task in plan.measurements.values()} == {4}  # type: ignore[union-attr]


def sample(data: str = "passkey", **keys: Any) -> dict[str, Any]:
    """The keys of a figure that shows an example of a task."""
    plot = {"kind": "text", "measurement": "sample", "column": "text"}
    entry = {"kind": "sample", "length": 300} | keys
    return {"data": data, "models": [], "seeds": [], "arms": {}, "measurements": [entry], "drawings": [plot]}


def test_an_example_needs_no_run(folder: Path) -> None:
    plan = planned(folder, **sample(depth=0.5))
    ((name, task),) = plan.measurements.items()
    (data,) = plan.data.values()
    assert isinstance(task.measurement, Sample)
    assert task.measurement.task == data
    assert task.measurement.example().mix[0].model_dump() == {"share": 1.0, "length": 300, "depths": (0.5, 0.5)}
    assert plan.inputs[name] == Inputs(data=data.id)
    assert plan.tables_of("lg_tab1") == (name,)
    found = needs(plan, load_config(folder).workflow, gpu=True)
    assert (found[name].gpus, found[name].seconds) == (0, 30.0)
    assert planned(folder, **sample("facts")).measurements.keys() != plan.measurements.keys()
    figure(folder, "lg_tab1", **sample("facts"))
    capped = make_plan(load_config(folder, figures=["lg_tab1"], overrides={"dry_run": {}}))
    (data,) = capped.data.values()
    assert data.text is not None
    assert data.text.max_documents == 40


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "cop"}, "unknown data set 'cop'; did you mean 'copy'"),
        ({"measurements": [{"kind": "position_loss", "length": 64}]}, "reads held-out text, and 'copy' is a task"),
        (
            {"measurements": [{"kind": "position_loss", "length": 64, "text": "facts"}]},
            "reads held-out text, and 'facts' is a task",
        ),
        (
            {"measurements": [{"kind": "position_loss", "length": 64, "text": "text"}]},
            "text: 'text' has other tokens than 'copy', which the run reads",
        ),
        ({"measurements": [{"kind": "accuracy", "task": "text"}]}, "task: 'text' is a text; name a task"),
        ({"measurements": [{"kind": "accuracy", "task": "pass"}]}, "unknown data set 'pass'; did you mean 'passkey'"),
        (
            {"measurements": [{"kind": "accuracy", "task": "passkey"}]},
            "'passkey' has other tokens than 'copy', which the run reads",
        ),
        ({"measurements": [{"kind": "accuracy", "lengths": [0]}]}, "lengths.0: expected a number above 0"),
        ({"data": "text", "measurements": [{"kind": "accuracy"}]}, "task: 'text' is a text"),
        ({"data": "passkey"}, "examples of 'passkey' need a context of 255, the recipe has 32"),
        (
            {"arms": ARMS | {"fine": {"label": "F", "from": "base", "training": "posttrain", "data": "text"}}},
            r"the vocabulary of 'text' \(256\) differs from the parent's \(16\)",
        ),
        ({"arms": {"base": ARMS["base"] | {"data": "copi"}}}, "arms.base.data: unknown data set 'copi'"),
        (sample("text"), "measurements.sample: needs a task as 'data'"),
        (sample("copy"), "the tokens of 'copy' do not represent text"),
        (sample("passky"), "data: unknown data set 'passky'; did you mean 'passkey'"),
        (sample(depth=2), "measurements.0.depth: expected a number up to 1, got 2"),
        (sample(name="one"), "measurements.0: unknown key 'name'"),
        (sample() | {"measurements": []}, "drawings.text.measurement: no measurement 'sample' in this figure"),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"lg_tab1.yaml.*{said}"):
        planned(folder, **changes)


def test_a_depth_is_refused_for_a_task_without_depths(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"facts at depth 0.5: mix.0: unknown key 'depths'"):
        planned(folder, **sample("facts", depth=0.5))


def test_curves_of_an_unknown_measurement_are_refused(folder: Path) -> None:
    curves = {"kind": "curves", "measurement": "sampel", "column": "tokens", "x": "place"}
    with pytest.raises(ConfigError, match=r"drawings.curves.measurement: no measurement 'sampel'.*'sample'"):
        planned(folder, **(sample() | {"drawings": [curves]}))


def test_mistakes_of_a_task_name_their_file(folder: Path) -> None:
    edit(
        folder,
        "data.yaml",
        "\npasskey: {task: passkey, mix: [{length: 256}]}",
        "\npasskey: {task: passkey, mix: [{lenght: 256}]}",
    )
    with pytest.raises(ConfigError, match=r"data.yaml: passkey: mix.0: unknown key 'lenght'; did you mean 'length'"):
        planned(folder)


def test_new_keys_with_defaults_are_not_part_of_the_content() -> None:
    """Otherwise plots of older figures would be drawn again."""
    content = ArmEntry(label="B", training="pretrain").content()
    assert not content.keys() & {"checkpoint", "context", "data", "grid", "member"}


def test_a_grid_over_a_tasks_keys(folder: Path) -> None:
    arms = {"base": ARMS["base"] | {"grid": {"alphabet": [4, 8], "longest": [6, 10]}}}
    plan = planned(folder, arms=arms, measurements=[{"kind": "accuracy", "lengths": [20]}])
    found = {(task.data.alphabet, task.data.mix[0].longest) for task in plan.measurements.values()}  # type: ignore
    assert found == {(4, 6), (4, 10), (8, 6), (8, 10)}
    fine = {"label": "F", "from": "base", "training": "posttrain", "data": "keys"}
    fine["override"] = {"context": 256, "batch_tokens": 256}
    arms = {"base": ARMS["base"] | {"grid": {"warmup": [0.0, 0.5]}}, "fine": fine}
    plan = planned(folder, data="text", arms=arms)
    assert sorted(run.data.name for run in plan.runs.values()) == ["keys", "keys", "text", "text"]
