"""The plan: shared work, resolved arms, measurements, collections, dry run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plan.mini import edit, figure, write_config
from plan.own import CONFIG

from ssm.base.errors import ConfigError
from ssm.figures.figure import FigureTask
from ssm.plan import Inputs, Plan, given_settings, load_config, make_plan, write_specs
from ssm.plan.resources import needs, training_tokens
from ssm.plan.summary import summary
from ssm.plan.walltime import jobs_for
from ssm.specs.config import DryRun
from ssm.specs.initial_states.random_noise import RandomNoise
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.cost import Cost
from ssm.specs.measurements.learning_curve import LearningCurve
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.model_size import ModelSize
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.measurements.taxonomy import Taxonomy
from ssm.specs.training import RunSpec


def planned(folder: Path, scale: str | None = None, **overrides: object) -> Plan:
    return make_plan(load_config(folder, scale, overrides=overrides))


def runs_by_arm(plan: Plan, target: str) -> dict[str, str]:
    return {series.arm: series.run for series in plan.figures[target].series}


def test_two_figures_share_a_run_and_parents_are_planned(folder: Path) -> None:
    plan = planned(folder)
    assert runs_by_arm(plan, "lg_fig4")["base"] == runs_by_arm(plan, "lg_fig5")["base"]
    assert len(plan.runs) == 2
    base, passing = runs_by_arm(plan, "lg_fig5").values()
    (data,) = plan.data
    assert plan.inputs[passing] == Inputs(data=data, run=base)
    assert plan.inputs[base] == Inputs(data=data)
    for name, run in plan.runs.items():
        assert run.id == name
    for name, task in plan.measurements.items():
        assert task.id == name
        assert plan.inputs[name].run in plan.runs


def test_a_parent_that_no_figure_shows_is_planned(folder: Path) -> None:
    figure(folder, "lg_fig5", measurements=[{"kind": "position_loss", "length": 64, "arms": ["state_passing"]}])
    plan = planned(folder, figures=["lg_fig5"])
    assert len(plan.measurements) == 1
    base, passing = plan.runs
    assert plan.inputs[passing].run == base


def test_an_arm_is_the_recipe_with_its_overrides(folder: Path) -> None:
    passing = {"label": "SP", "from": "base", "training": "posttrain", "initial_state": "state_passing"}
    passing["override"] = {"budget": {"tokens": 640}, "initial_state": {"p_zero": 0.5}, "lr_scale": 1}
    figure(folder, "lg_fig5", arms={"base": {"label": "B", "training": "pretrain"}, "state_passing": passing})
    plan = planned(folder)
    training = plan.runs[runs_by_arm(plan, "lg_fig5")["state_passing"]].training
    assert training.initial_state == StatePassing(p_zero=0.5)
    assert (training.budget.tokens, training.budget.steps) == (640, None)
    assert (training.lr_scale, training.schedule, training.warmup) == (1.0, "constant", 10)
    assert plan.runs[runs_by_arm(plan, "lg_fig5")["base"]].training.initial_state == ZeroState()


def test_an_arm_can_differ_by_panel(folder: Path) -> None:
    """The keys in `override_at` of a model replace those in `override`; in an initial state, each key alone."""
    own = {"warmup": 5, "budget": {"chinchilla": 25}, "initial_state": {"sigma": 0.5}}
    base = {"label": "B", "training": "pretrain", "initial_state": "random_noise", "override": own}
    base["override_at"] = {"large": {"budget": {"chinchilla": 10}, "initial_state": {"p_zero": 0.25}}}
    figure(folder, "lg_fig2", models=["tiny", "large"], arms={"base": base})
    plan = planned(folder, "paper", figures=["lg_fig2"])
    training = {s.panel: plan.runs[s.run].training for s in plan.figures["lg_fig2"].series}
    assert {panel: recipe.budget.chinchilla for panel, recipe in training.items()} == {"tiny": 25, "large": 10}
    assert {recipe.warmup for recipe in training.values()} == {5}
    assert {panel: recipe.initial_state for panel, recipe in training.items()} == {
        "tiny": RandomNoise(sigma=0.5, p_zero=0.05),
        "large": RandomNoise(sigma=0.5, p_zero=0.25),
    }


def test_an_arm_can_have_only_some_of_the_seeds(folder: Path) -> None:
    """It has the first ones. Its child has all seeds, and the parents of all of them are planned."""
    arms = {
        "base": {"label": "B", "training": "pretrain", "seeds": 2},
        "control": {"label": "C", "from": "base", "training": "posttrain"},
    }
    figure(folder, "lg_fig2", seeds=[7, 5, 6], arms=arms)
    plan = planned(folder, figures=["lg_fig2"])
    seeds = [(s.arm, s.seed) for s in plan.figures["lg_fig2"].series]
    assert seeds == [("base", 7), ("base", 5), ("control", 7), ("control", 5), ("control", 6)]
    assert len(plan.runs) == 6


def test_an_arm_cannot_have_more_seeds_than_its_figure(folder: Path) -> None:
    """A dry run has fewer seeds, and refuses nothing else."""
    arms = {"base": {"label": "B", "training": "pretrain", "seeds": 3}}
    figure(folder, "lg_fig2", seeds=[7, 5, 6], arms=arms)
    planned(folder, figures=["lg_fig2"], dry_run={})
    figure(folder, "lg_fig2", seeds=[7, 5], arms=arms)
    with pytest.raises(
        ConfigError, match=r"lg_fig2.yaml: arms.base.seeds: 3 seeds, but the figure has only 2 at the scale 'smoke'; "
    ):
        planned(folder, figures=["lg_fig2"])


def test_two_arms_with_one_label_are_refused(folder: Path) -> None:
    arms = {name: {"label": "T=32", "training": "pretrain"} for name in ("base", "short")}
    figure(folder, "lg_fig2", arms=arms)
    with pytest.raises(ConfigError, match=r"lg_fig2.yaml: arms: the label 'T=32' is given twice"):
        planned(folder, figures=["lg_fig2"])


def test_lengths_in_contexts_use_the_arms_context(folder: Path) -> None:
    arms = {
        "short": {"label": "T=32", "training": "pretrain"},
        "long": {"label": "T=64", "training": "pretrain", "override": {"context": 64}},
    }
    kinds = [{"kind": kind, "times_context": 2.5} for kind in ("position_loss", "restart_loss")]
    figure(folder, "lg_fig2", arms=arms, measurements=kinds)
    plan = planned(folder, figures=["lg_fig2"])
    found = {
        series.arm: [plan.measurements[t].measurement for t in series.tables.values()]
        for series in plan.figures["lg_fig2"].series
    }
    for arm, context in (("short", 32), ("long", 64)):
        position, restart = found[arm]
        assert isinstance(position, PositionLoss)
        assert isinstance(restart, RestartLoss)
        assert position.length == restart.length == 2.5 * context
        assert restart.context == context
        assert position.sequences == restart.sequences
        assert position.seed == restart.seed


def test_a_snapshot_is_part_of_the_trained_run(folder: Path) -> None:
    arms = {
        "early": {"label": "Early", "snapshot_of": "base", "at": 0.25},
        "base": {"label": "Base", "training": "pretrain"},
        "middle": {"label": "Middle", "snapshot_of": "base", "at": 0.5},
    }
    figure(folder, "lg_fig3", arms=arms)
    plan = planned(folder, figures=["lg_fig3"])
    ((name, run),) = plan.runs.items()
    assert run.training.snapshots == (0.25, 0.5)
    assert {series.arm: (series.run, series.snapshot) for series in plan.figures["lg_fig3"].series} == {
        "early": (name, 0.25),
        "base": (name, None),
        "middle": (name, 0.5),
    }
    assert sorted((task.snapshot or 1) for task in plan.measurements.values()) == [0.25, 0.5, 1]


def test_a_run_keeps_only_the_snapshots_that_arms_need(folder: Path) -> None:
    arms = {
        "base": {"label": "Base", "training": "pretrain"},
        "short": {"label": "Short", "training": "posttrain"},
        "early": {"label": "Early", "snapshot_of": "short", "at": 0.5},
    }
    figure(folder, "lg_fig3", arms=arms)
    plan = planned(folder, figures=["lg_fig3"])
    runs = runs_by_arm(plan, "lg_fig3")
    assert {arm: plan.runs[run].training.snapshots for arm, run in runs.items()} == {
        "base": (),
        "short": (0.5,),
        "early": (0.5,),
    }


def test_a_class_reads_the_position_loss_of_its_arm(folder: Path) -> None:
    kinds = [{"kind": "length_class"}, {"kind": "position_loss", "length": 128}]
    figure(folder, "ls_fig2", paper="ls", measurements=kinds)
    plan = planned(folder, figures=["ls_fig2"])
    every = plan.figures["ls_fig2"].series
    assert every
    for series in every:
        needs = plan.inputs[series.tables["length_class"]]
        assert needs == Inputs(run=series.run, table=series.tables["position_loss"])


def test_an_arm_can_have_two_measurements_of_a_kind(folder: Path) -> None:
    far = {"kind": "position_loss", "name": "far", "length": 256, "arms": ["base"]}
    classes = [{"kind": "length_class"}, {"kind": "length_class", "name": "far_class", "of": "far", "arms": ["base"]}]
    figure(folder, "ls_fig2", paper="ls", measurements=[*classes, {"kind": "position_loss", "length": 128}, far])
    plan = planned(folder, figures=["ls_fig2"])
    series = {one.arm: one.tables for one in plan.figures["ls_fig2"].series}
    assert set(series["state_passing"]) == {"position_loss", "length_class"}
    assert set(series["base"]) == {"position_loss", "length_class", "far", "far_class"}
    lengths = {name: plan.measurements[table].measurement for name, table in series["base"].items()}
    assert (lengths["position_loss"].length, lengths["far"].length) == (128, 256)
    assert (lengths["length_class"].of.length, lengths["far_class"].of.length) == (128, 256)
    assert plan.inputs[series["base"]["far_class"]].table == series["base"]["far"]
    only = [{"kind": "length_class"}, far]
    figure(folder, "ls_fig2", paper="ls", arms={"base": {"label": "B", "training": "pretrain"}}, measurements=only)
    (series,) = planned(folder, figures=["ls_fig2"]).figures["ls_fig2"].series
    assert set(series.tables) == {"far", "length_class"}, "the only curve is classified"


def test_lists_of_lengths_can_be_given_in_contexts(folder: Path) -> None:
    asked = {"kind": "passkey", "times_context": [8, 16.5], "depths": [0, 0.5], "trials": 3}
    figure(folder, "lg_fig7", measurements=[asked])
    plan = planned(folder, figures=["lg_fig7"])
    wanted = Passkey(lengths=(256, 528), depths=(0.0, 0.5), trials=3)
    assert {task.measurement for task in plan.measurements.values()} == {wanted}
    caps = DryRun(max_sequences=2, max_contexts=8)
    capped = planned(folder, figures=["lg_fig7"], dry_run=caps.content())
    assert {task.measurement for task in capped.measurements.values()} == {
        wanted.model_copy(update={"lengths": (256,), "trials": 2})
    }


def test_a_collection_takes_every_run_once_with_its_longest_curve(folder: Path) -> None:
    figure(folder, "lg_fig6", measurements=[{"kind": "position_loss", "length": 1024, "arms": ["base"]}])
    figure(folder, "lg_fig7", measurements=[{"kind": "position_loss", "length": 2048}])  # not collected
    kinds = [{"kind": "length_class"}, {"kind": "position_loss"}]
    chart = {"arms": {}, "measurements": kinds, "drawings": [{"kind": "length_classes"}]}
    figure(folder, "ls_fig1", paper="ls", collect=["lg_fig4", "lg_fig5", "lg_fig6"], **chart)
    plan = planned(folder)
    series = {one.arm: one for one in plan.figures["ls_fig1"].series}
    assert set(series) == {"lg_fig6.base", "lg_fig5.state_passing"}
    assert list(plan.figures) == ["lg_fig4", "lg_fig5", "lg_fig6", "lg_fig7", "ls_fig1"]
    assert set(series["lg_fig6.base"].tables) == {"position_loss", "length_class"}
    longest = plan.measurements[series["lg_fig6.base"].tables["length_class"]].measurement
    assert isinstance(longest, LengthClass)
    assert longest.of.length == 1024
    assert set(plan.tables_of("ls_fig1")) <= set(plan.measurements)

    # Planned alone it is the same figure, and nothing else is planned.
    alone = planned(folder, figures=["ls_fig1"])
    assert alone.figures == {"ls_fig1": plan.figures["ls_fig1"]}
    assert set(alone.measurements) == set(alone.tables_of("ls_fig1"))
    assert set(alone.runs) <= jobs_for(alone, alone.tables_of("ls_fig1"))


def test_a_collection_compares_windows_that_are_read_in_blocks(folder: Path) -> None:
    for target, length in (("lg_fig5", 64), ("lg_fig6", 128)):
        figure(folder, target, measurements=[{"kind": "restart_loss", "length": length}])
    drawing = {"kind": "curves", "measurement": "restart_loss", "x": "position", "column": "loss"}
    taken = {"arms": {}, "measurements": [{"kind": "restart_loss"}], "drawings": [drawing]}
    figure(folder, "ls_fig1", paper="ls", collect=["lg_fig5", "lg_fig6"], **taken)
    series = planned(folder, figures=["ls_fig1"]).figures["ls_fig1"].series
    assert [one.arm for one in series] == ["lg_fig6.base", "lg_fig6.state_passing"]


def test_model_sizes_need_no_run_and_no_data(folder: Path) -> None:
    arms = {"arms": {}, "measurements": [{"kind": "model_size"}], "drawings": [{"kind": "configuration_table"}]}
    figure(folder, "lg_tab2", models=["tiny", "large"], **arms)
    plan = planned(folder, "paper", figures=["lg_tab2"])
    assert not plan.runs
    assert not plan.data
    ((name, task),) = plan.measurements.items()
    assert isinstance(task.measurement, ModelSize)
    assert [model.name for model in task.measurement.models] == ["tiny", "large"]
    assert plan.tables_of("lg_tab2") == (name,)
    assert plan.inputs[name] == Inputs()


def test_costs_and_taxonomies_need_no_run(folder: Path) -> None:
    entries = [{"kind": "taxonomy"}, {"kind": "cost", "lengths": [4, 8, 16], "repeats": 2}]
    figure(folder, "ls_tab1", models=["tiny"], arms={}, measurements=entries, drawings=[{"kind": "cost_curves"}])
    plan = planned(folder, figures=["ls_tab1"])
    taxa, costs = (task.measurement for task in plan.measurements.values())
    assert isinstance(taxa, Taxonomy)
    assert isinstance(costs, Cost)
    assert (costs.lengths, costs.repeats, costs.vocab_size) == ((4, 8, 16), 2, 256)
    assert len(plan.tables_of("ls_tab1")) == 2
    assert not plan.runs
    figure(folder, "ls_tab1", models=["tiny"], arms={}, measurements=[{"kind": "taxonomy", "sequences": 3}],
           drawings=[{"kind": "taxonomy_table"}])  # fmt: skip
    with pytest.raises(ConfigError, match=r"ls_tab1.yaml: measurements.0: unknown key 'sequences'"):
        planned(folder, figures=["ls_tab1"])


def test_claims_stay_if_a_scale_lacks_their_arm(folder: Path) -> None:
    edit(folder, "figures/lg_fig5.yaml", "state_passing: {label", "state_passing: {paper: null, smoke: {label")
    edit(folder, "figures/lg_fig5.yaml", "initial_state: state_passing}", "initial_state: state_passing}}")
    plan = planned(folder, "paper", figures=["lg_fig5"])
    assert set(runs_by_arm(plan, "lg_fig5")) == {"base"}
    assert [claim.id for claim in plan.figures["lg_fig5"].figure.claims] == ["repaired"]


def test_the_name_of_a_paper_means_all_its_figures_of_the_scale(folder: Path) -> None:
    figure(folder, "bn_fig1", paper="bn", seeds={"smoke": [1], "desk": [2]})
    assert set(planned(folder, figures=["lg"]).figures) == {"lg_fig4", "lg_fig5"}
    assert set(planned(folder, figures=["bn", "lg_fig5"]).figures) == {"bn_fig1", "lg_fig5"}
    for names in (["all"], ["all", "lg_fig5"], "all"):
        library = load_config(folder, overrides={"figures": names})
        assert (library.workflow.figures, library.wanted) == ("all", ("bn_fig1", "lg_fig4", "lg_fig5"))
    with pytest.raises(ConfigError, match="unknown figure 'lg_fig55'; did you mean 'lg_fig5'"):
        load_config(folder, figures=["all", "lg_fig55"])
    edit(folder, "figures/lg_fig5.yaml", "seeds: [1]", "seeds: {smoke: [1], desk: [2]}")
    library = load_config(folder, "desk", figures=["lg"])
    assert (library.wanted, library.left_out) == (("lg_fig5",), ("lg_fig4",))
    with pytest.raises(
        ConfigError, match=r"with figures given: figures: unknown figure 'ls_fig4'; did you mean 'lg_fig4'\?$"
    ):
        load_config(folder, figures=["ls_fig4"])
    edit(folder, "figures/bn_fig1.yaml", "desk:", "gpu:")
    with pytest.raises(ConfigError, match=r"figures: 'bn' has no figure of the scale 'desk'$"):
        load_config(folder, "desk", figures=["bn", "lg"])


def test_a_figure_takes_part_in_desk_only_with_seeds_for_it(folder: Path) -> None:
    edit(folder, "figures/lg_fig5.yaml", "seeds: [1]", "seeds: {smoke: [1], desk: [2, 3]}")
    assert set(planned(folder).figures) == {"lg_fig4", "lg_fig5"}
    library = load_config(folder, "desk")
    (task,) = make_plan(library).figures.values()
    assert task.figure.seeds == (2, 3)
    assert library.left_out == ("lg_fig4",)
    why = "'lg_fig4' is no figure of the scale 'desk': its file has no seeds for it. Scales with this figure: smoke"
    assert str(library.why_left_out("lg_fig4")).startswith(why)
    assert str(library.why_left_out("lg_fig4")).endswith("Figures of this scale: did you mean 'lg_fig5'?")
    assert library.why_left_out("lg_fig5") is library.why_left_out("lg_fig6") is None
    line = "Without seeds for the scale 'desk', and so not planned: lg_fig4."
    assert line in summary(make_plan(library), library.workflow, left_out=library.left_out).splitlines()
    with pytest.raises(
        ConfigError, match=r"figures/lg_fig4.yaml: seeds: no value for the scale 'desk'.* desk: \[...\]"
    ):
        planned(folder, "desk", figures=["lg_fig4"])
    figure(folder, "lg_fig9", collect=["lg_fig4", "lg_fig5"], arms={}, seeds={"smoke": [], "desk": []})
    with pytest.raises(ConfigError, match=r"figures/lg_fig4.yaml: seeds: no value for the scale 'desk'"):
        planned(folder, "desk", figures=["lg_fig9"])


def test_lg_fig5_at_desk_differs_from_smoke_only_in_its_seeds() -> None:
    plans = {scale: make_plan(load_config(CONFIG, scale, ["lg_fig5"])) for scale in ("smoke", "desk")}

    def content(plan: Plan) -> tuple[object, ...]:
        task = plan.figures["lg_fig5"]
        figure = task.figure.model_copy(update={"seeds": (), "deviations": ()})
        arms, tables = set(), set()
        for one in task.series:
            run = json.dumps(plan.runs[one.run].content(), sort_keys=True)
            arms.add((one.panel, one.arm, re.sub(r'"seed": \d+', "", run)))  # also of its parents
            tables |= {(one.arm, name, plan.measurements[table].measurement) for name, table in one.tables.items()}
        return figure, arms, tables

    assert content(plans["smoke"]) == content(plans["desk"])
    smoke, desk = ({one.seed for one in plan.figures["lg_fig5"].series} for plan in plans.values())
    assert not smoke & desk


def test_a_dry_run_limits_everything(folder: Path) -> None:
    figure(folder, "lg_fig5", seeds=[1, 2, 3])
    caps = DryRun(max_steps=3, max_sequences=2, max_contexts=4, max_seeds=2, max_documents=7)
    plan = planned(folder, dry_run=caps.content())
    assert {series.seed for series in plan.figures["lg_fig5"].series} == {1, 2}
    assert plan.figures["lg_fig5"].figure.seeds == (1, 2)
    assert all(task.dry_run for task in plan.figures.values())
    assert not any(task.dry_run for task in planned(folder).figures.values())
    for run in plan.runs.values():
        assert run.training.budget.steps == 3
        assert run.training.warmup <= 1
        assert run.data.max_documents == 7
    for task in plan.measurements.values():
        assert task.measurement.length == 4 * 32
        assert task.measurement.sequences == 2
    assert not set(plan.runs) & set(planned(folder).runs)


def test_specs_are_written_once_and_read_back(folder: Path, tmp_path: Path) -> None:
    plan = planned(folder)
    specs = tmp_path / "specs"
    count = 2 * len(plan.data) + len(plan.runs) + len(plan.measurements) + len(plan.figures)
    assert write_specs(plan, specs) == count
    assert write_specs(plan, specs) == 0
    for name, run in plan.runs.items():
        assert RunSpec.load(specs / "runs" / f"{name}.json") == run
    for name in plan.measurements:
        assert MeasurementTask.load(specs / "measurements" / f"{name}.json").id == name
    for name, shown in plan.figures.items():
        assert FigureTask.load(specs / "figures" / f"{name}.json") == shown
    (specs / "figures" / "lg_fig4.json").write_text("{")
    assert write_specs(plan, specs) == 1
    assert json.loads((specs / "figures" / "lg_fig4.json").read_text())["scale"] == "smoke"


def test_specs_of_some_jobs_are_written_with_those_of_all_figures(folder: Path, tmp_path: Path) -> None:
    plan = planned(folder)
    run, table = next(iter(plan.runs)), next(iter(plan.measurements))
    assert write_specs(plan, tmp_path, {run, table, "another"}) == 2 + len(plan.figures) + len(plan.data)
    written = {path.stem for path in tmp_path.rglob("*.json")}
    assert written == {run, table, *plan.figures, *plan.data}
    assert not (tmp_path / "data").exists(), "the windows of a data set are written without its spec"


def test_the_spec_of_a_figure_keeps_the_order_of_its_file(folder: Path, tmp_path: Path) -> None:
    zero = {"label": "Zero", "training": "pretrain"}
    figure(folder, "lg_fig9", arms={"zero": zero, "after": {"label": "After", "from": "zero", "training": "posttrain"}})
    write_specs(planned(folder), tmp_path)
    written = json.loads((tmp_path / "figures/lg_fig9.json").read_text())
    assert list(written["figure"]["arms"]) == ["zero", "after"]
    assert list(FigureTask.load(tmp_path / "figures/lg_fig9.json").figure.arms) == ["zero", "after"]


def test_a_given_section_keeps_its_other_keys(folder: Path) -> None:
    with (folder / "config.yaml").open("a") as config:
        config.write("hardware: {layer_ms: 3, gpu_tflops: {float32: 50}}\n")
    hardware = load_config(
        folder, overrides={"hardware": {"gpus_per_run": 8, "gpu_tflops": {"bfloat16": 100}}}
    ).workflow.hardware
    assert (hardware.gpus_per_run, hardware.layer_ms) == (8, 3.0)
    assert (hardware.gpu_tflops.bfloat16, hardware.gpu_tflops.float32) == (100.0, 50.0)


def test_the_summary_counts_shared_work_once(folder: Path) -> None:
    """A layer takes 36 s: the 100 steps of the base run take an hour, the 20 of the other run 12 minutes."""
    library = load_config(folder, overrides={"hardware": {"layer_ms": 36_000.0}})
    plan = make_plan(library)
    assert sum(training_tokens(run) for run in plan.runs.values()) == 120 * 128
    lines = summary(plan, library.workflow, gpus=1).splitlines()
    cells = [line.split("  ") for line in lines[2:6]]
    head, *rows = ([cell.strip() for cell in line if cell] for line in cells)
    assert head[6:] == ["training tokens", "GPU hours", "disk", "GPUs per run", "memory", "wall time"]
    assert rows == [
        ["lg_fig4", "1", "1", "1", "1", "0", "12.8 k", "1", "4 MB", "1", "1 MB", "1 h 2 min"],
        ["lg_fig5", "2", "1", "2", "2", "1", "2.56 k", "0.23", "3 MB", "1", "1 MB", "1 h 15 min"],
        ["all", "2", "3", "1", "15.4 k", "1.2", "7 MB", "1", "1 MB", "1 h 15 min"],
    ]
    assert lines[-1] == (
        "All numbers are estimates: 20% of 989 TFLOP/s per GPU in bfloat16 and 67 in float32 (config.yaml: hardware)."
    )
    assert "1 h 14 min" in summary(plan, library.workflow, gpus=2), "two tables in parallel"
    on_cpu = load_config(folder, overrides={"device": "cpu"})
    assert "CPU hours" in summary(make_plan(on_cpu), on_cpu.workflow, gpus=1)


def test_the_summary_warns_about_runs_that_are_too_large_or_too_long(folder: Path) -> None:
    """The base run takes an hour and half a MB. Two GPUs share the states, the activations and the time."""

    def warned(**hardware: float) -> list[str]:
        library = load_config(folder, overrides={"hardware": {"layer_ms": 36_000.0} | hardware})
        plan = make_plan(library)
        lines = summary(plan, library.workflow, gpus=8).splitlines()
        assert all(run.training.batch_size == 4 for run in plan.runs.values())
        return [line for line in lines if "gpus_per_run" in line or "gpu_memory_gb" in line]

    assert warned() == warned(hours_per_run=0.51) == []
    assert warned(hours_per_run=0.5) == [
        "The longest run takes 1 h 0 min on 1 GPU: change gpus_per_run in config.yaml."
    ]
    assert warned(hours_per_run=0.2, gpus_per_run=2) == [
        "The longest run takes 30 min on 2 GPUs: change gpus_per_run in config.yaml."
    ]
    assert warned(hours_per_run=0.2, gpus_per_run=4) == []
    runs, measurements = warned(gpu_memory_gb=1e-4)
    assert re.fullmatch(
        r"2 of 2 runs do not fit into a GPU's 0\.0001 GB \(the largest needs 1 MB\): change gpus_per_run and "
        r"gpu_memory_gb in config\.yaml\.",
        runs,
    )
    assert "measurements do not fit" in measurements
    assert "gpus_per_run" not in measurements


def test_a_learning_curve_needs_only_the_run(folder: Path) -> None:
    figure(folder, "lg_fig2", measurements=[{"kind": "learning_curve", "every": 5, "arms": ["base"]}])
    plan = planned(folder, figures=["lg_fig2"])
    ((name, task),) = plan.measurements.items()
    assert task.measurement == LearningCurve(every=5)
    assert plan.inputs[name] == Inputs(run=runs_by_arm(plan, "lg_fig2")["base"])
    assert needs(plan, load_config(folder).workflow, gpu=True)[name].gpus == 0


@pytest.mark.parametrize(
    ("given", "folder"),
    [("./own/", "own"), ("own/../other", "other"), ("~/own", "/home/me/own"), ("~no_such_user/x", "~no_such_user/x")],
)
def test_the_folder_of_results_is_normal(
    given: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake takes names as they are."""
    monkeypatch.setenv("HOME", "/home/me")
    assert load_config(write_config(tmp_path), overrides={"results": given}).workflow.results == folder


def test_settings_are_the_same_in_a_file_and_on_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("dry_run: {max_steps: 1e1, max_seeds: 2}\ndevice: cpu\ncluster:\n")
    pairs = ["dry_run={max_steps: 3}", 'cluster={account: "12", qos: null, max_hours: 1e3}', "device=", "threads=2"]
    assert given_settings(pairs, "--config", [tmp_path / "mine.yaml"]) == {
        "dry_run": {"max_steps": 3, "max_seeds": 2},
        "cluster": {"account": "12", "qos": None, "max_hours": 1000.0},
        "device": None,
        "threads": 2,
    }
