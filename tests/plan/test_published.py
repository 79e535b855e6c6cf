"""Arms with imported weights: plan, needs and registrations."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from plan import own
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.plan import Inputs, Plan, load_config, make_plan
from ssm.plan.resources import MEMORY_MB, needs, training_tokens
from ssm.plan.review import contents
from ssm.plan.sources import imported_files
from ssm.plan.summary import summary
from ssm.specs.training import CheckpointRef, RunSpec

BASE = {
    "label": "Base",
    "training": {"smoke": "pretrain", "paper": None},
    "checkpoint": {"smoke": None, "paper": "x/y"},
}
PASSING = {"label": "State Passing", "from": "base", "training": "posttrain", "initial_state": "state_passing"}


def planned(folder: Path, scale: str = "smoke", target: str = "lg_fig5") -> Plan:
    return make_plan(load_config(folder, scale, [target]))


def of_arms(plan: Plan) -> dict[str, RunSpec]:
    return {series.arm: plan.runs[series.run] for series in plan.figures["lg_fig5"].series}


def test_an_arm_is_trained_at_one_scale_and_imported_at_another(folder: Path) -> None:
    before = planned(folder)
    figure(
        folder, "lg_fig5", arms={"base": BASE | {"context": {"smoke": None, "paper": 2048}}, "state_passing": PASSING}
    )
    assert planned(folder).runs == before.runs, "nothing changes at the scale where it is trained"
    assert planned(folder).figures["lg_fig5"].series == before.figures["lg_fig5"].series

    plan = planned(folder, "paper")
    base, passing = of_arms(plan).values()
    assert base.checkpoint == CheckpointRef(name="x/y")
    assert (base.training.context, base.training.budget.steps, base.parent) == (2048, 0, None)
    assert passing.parent == base
    assert plan.inputs[base.id] == Inputs(), "an import needs no tokens"
    assert plan.inputs[passing.id] == Inputs(data=base.data.id, run=base.id)
    assert plan.inputs[plan.figures["lg_fig5"].series[0].tables["position_loss"]] == Inputs(base.data.id, base.id)
    assert plan.measurements[plan.figures["lg_fig5"].series[0].tables["position_loss"]].measurement.length == 16 * 2048
    assert base.id.startswith("tiny_T2048_imported_s1-")
    assert [series.published for series in plan.figures["lg_fig5"].series] == ["x/y", "x/y"]


def test_weights_have_several_sources(folder: Path) -> None:
    """The key `published`, an entry of models.yaml, the Hub, or a folder. An arm's own context comes first."""
    edit(folder, "models.yaml", "tiny: {", "tiny: {published: {checkpoint: o/tiny@5f, context: 64}, ")
    with (folder / "models.yaml").open("a") as models:
        models.write("mine: {checkpoint: my models/mine, text: [a], context: {smoke: 16, paper: 32}}\n")
    arms = {
        "own": {"label": "A", "checkpoint": "published"},
        "entry": {"label": "B", "checkpoint": "mine"},
        "longer": {"label": "C", "checkpoint": "mine", "context": 48},
        "hub": {"label": "D", "checkpoint": "o/m", "context": 8},
        "path": {"label": "E", "checkpoint": "./m", "context": 8},
    }
    figure(folder, "lg_fig5", arms=arms)
    found = {arm: (run.published, run.training.context) for arm, run in of_arms(planned(folder)).items()}
    assert found == {
        "own": ("o/tiny@5f", 64),
        "entry": ("my models/mine", 16),
        "longer": ("my models/mine", 48),
        "hub": ("o/m", 8),
        "path": ("./m", 8),
    }


def test_every_seed_has_its_own_import(folder: Path) -> None:
    """Because the seed decides the windows of text, and arms are compared by seed."""
    arms = {"base": {"label": "B", "checkpoint": "x/y", "context": 32}, "state_passing": PASSING}
    figure(folder, "lg_fig5", arms=arms, seeds=[7, 5])
    plan = planned(folder)
    assert [(s.arm, s.seed, plan.runs[s.run].seed) for s in plan.figures["lg_fig5"].series] == [
        ("base", 7, 7),
        ("base", 5, 5),
        ("state_passing", 7, 7),
        ("state_passing", 5, 5),
    ]
    assert len(plan.runs) == 4
    for run in plan.runs.values():
        assert run.origin.seed == run.seed


def test_an_import_needs_no_gpu_and_no_training(folder: Path) -> None:
    edit(folder, "models.yaml", "d_model: {paper: 512}", "d_model: 512")
    arms = {"base": {"label": "B", "checkpoint": "x/y", "context": 2048}, "state_passing": PASSING}
    figure(folder, "lg_fig5", arms=arms, models=["large"])
    library = load_config(folder, "smoke", ["lg_fig5"], {"device": "cuda"})
    plan = make_plan(library)
    base, passing = of_arms(plan).values()
    found = needs(plan, library.workflow, gpu=True)
    weights = 4 * (12 * 1_720_112 + 256 * 512 + 512) / 1e6  # MB, in float32: models.yaml
    assert found[base.id].disk_mb == ceil(weights)
    assert found[base.id].memory_mb == MEMORY_MB[False] + ceil(2 * weights)
    assert (found[base.id].gpus, found[passing.id].gpus) == (0, 1)
    assert training_tokens(base) == 0
    told = summary(plan, library.workflow)
    assert told.startswith("Plan at the scale 'smoke': data sets 1, training runs 1, tables 2")
    assert "Imported weights, not trained here: x/y." in told
    assert "Imported weights" not in summary(planned(folder, target="lg_fig4"), library.workflow)


def test_a_registration_depends_on_the_weights(folder: Path) -> None:
    """Another revision changes it; another label does not."""

    def decided(**changes: object) -> object:
        base = {"label": "B", "checkpoint": "x/y", "context": 32} | changes
        one = {"kind": "perplexity_growth", "arm": "base", "times_context": 16}
        claim = {"id": "c", "says": "S.", "paper": "P.", "quantity": one, "expected": {"above": 1.1}}
        figure(folder, "lg_fig5", arms={"base": base}, claims=[claim])
        plan = planned(folder)
        return contents(plan.figures["lg_fig5"], plan.runs, plan.measurements)["c"]

    assert decided() == decided(label="Official")
    assert decided() != decided(checkpoint="x/y@5f")
    assert decided() != decided(context=64)


def test_the_files_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights and the JSON files; None for weights on the Hub and for missing files."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "models/m/pytorch_model.bin",
        "models/m/config.json",
        "models/m/notes.txt",
        "models/empty/config.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    there = tmp_path / "models" / "m"
    assert imported_files("models/m") == (there / "pytorch_model.bin", there / "config.json")
    assert [imported_files(name) for name in ("models/gone", "o/m@5f", "models/empty", "~/no such")] == [None] * 4


def test_the_papers_figures_start_from_the_official_checkpoints() -> None:
    targets = [f"lg_fig{number}" for number in (1, 4, 5, 9, 12, 13)]
    plan = make_plan(load_config(own.CONFIG, "paper", targets))
    runs = plan.runs.values()
    bases = {run.model.name: run for run in runs if run.parent is None}
    assert {name: run.published for name, run in bases.items()} == {
        f"{name}-{size}": f"state-spaces/{name.replace('mamba1', 'mamba')}-{size}"
        for name, sizes in (("mamba1", ("130m", "370m")), ("mamba2", ("130m", "370m", "780m", "1.3b")))
        for size in sizes
    }
    assert {run.training.context for run in bases.values()} == {2048}
    assert sum(map(training_tokens, runs)) < 4e9
    used = {31, *range(11, 14), *range(21, 25), *range(32, 37)}
    assert not used & {run.seed for run in runs}, "registered for base models that were trained here"


def test_published_weights_do_not_change_a_model(folder: Path) -> None:
    before = load_config(folder).models.get("tiny", "here")
    edit(folder, "models.yaml", "tiny: {", "tiny: {published: {checkpoint: o/m, context: 8}, ")
    library = load_config(folder)
    assert library.models.get("tiny", "here") == before


def test_published_weights_are_fine_tuned_on_a_task_with_the_same_vocabulary(folder: Path) -> None:
    data = folder / "data.yaml"
    copy = "copy: {task: copy, alphabet: 12, mix: [{shortest: 5, longest: 6}]}"
    tasks = f"passkey: {{task: passkey, mix: [{{length: 256}}]}}\n{copy}\n"
    data.write_text(data.read_text() + tasks)
    base = {"label": "B", "checkpoint": "x/y", "context": 32}
    tuned = {"label": "T", "from": "base", "training": "posttrain", "data": "passkey"}
    tuned["override"] = {"context": 256, "batch_tokens": 512}
    figure(folder, "lg_fig5", arms={"base": base, "tuned": tuned}, measurements=[])
    before, after = of_arms(planned(folder)).values()
    assert (before.data.name, after.data.name) == ("text", "passkey")
    assert (after.parent, after.published) == (before, "x/y")
    figure(folder, "lg_fig5", arms={"base": base, "tuned": tuned | {"data": "copy"}}, measurements=[])
    with pytest.raises(
        ConfigError, match=r"arms.tuned: .*vocabulary of 'copy' \(\d+\) differs from the parent's \(256\)"
    ):
        planned(folder)
