"""What jobs are expected to take: arithmetic that can be done by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from plan.mini import edit, figure, write_config

from ssm.evaluation import stream
from ssm.evaluation.bins import bin_edges, octaves
from ssm.plan import Plan, load_config, make_plan, resources
from ssm.plan.memory import peak_memory
from ssm.plan.parameters import operations_per_token, parameter_count
from ssm.plan.resources import Need, needs, training_tokens
from ssm.specs.base import Spec
from ssm.specs.config import Cluster, Hardware, WorkflowConfig
from ssm.specs.measurement import MeasurementTask, Passkey, RestartLoss

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path / "config")


def planned(folder: Path, scale: str = "smoke", **overrides: Any) -> tuple[Plan, WorkflowConfig]:
    library = load_config(folder, scale, overrides=overrides)
    return make_plan(library), library.workflow


SLOW = {"gpu_tflops": {"bfloat16": 2e-6, "float32": 1e-6}, "utilization": 0.5, "layer_ms": 0.0}  # half a MFLOP/s


def test_training_takes_its_operations_over_the_rate(folder: Path) -> None:
    """Three forward passes a token; four with activation checkpointing; bfloat16 at its own peak."""
    plan, workflow = planned(folder, hardware=SLOW)
    (base,) = (run for run in plan.runs.values() if run.parent is None)
    forward = operations_per_token(base.model, 256, 32) * 100 * 128
    found = needs(plan, workflow, gpu=True)[base.id]
    assert found.seconds == pytest.approx(resources.START_SECONDS + 3 * forward / 0.5e6)
    assert (found.gpus, found.cpus) == (1, 1)
    edit(folder, "training.yaml", "{steps: 100}", "{steps: 100}, precision: bfloat16, activation_checkpointing: true")
    plan, workflow = planned(folder, hardware=SLOW)
    (base,) = (run for run in plan.runs.values() if run.parent is None)
    found = needs(plan, workflow, gpu=True)[base.id]
    assert found.seconds == pytest.approx(resources.START_SECONDS + 4 * forward / 1e6)


def test_small_models_take_no_less_than_their_launches(folder: Path) -> None:
    edit(folder, "training.yaml", "{steps: 100}", "{steps: 100}, micro_batch_tokens: 32")
    plan, workflow = planned(folder, hardware={"layer_ms": 1000})
    (base,) = (name for name, run in plan.runs.items() if run.parent is None)
    micro_batches = 100 * 4  # of one layer and a second each
    assert needs(plan, workflow, gpu=True)[base].seconds == resources.START_SECONDS + micro_batches


def test_threads_make_a_cpu_faster_and_no_job_asks_for_a_gpu(folder: Path) -> None:
    one, two = (planned(folder, threads=threads, hardware={"cpu_gflops": 1e-3, "layer_ms": 0}) for threads in (1, 2))
    assert all(need.gpus == 0 for need in needs(*one, gpu=False).values())
    for run in one[0].runs:
        slow, fast = (needs(*plan, gpu=False)[run] for plan in (one, two))
        assert slow.seconds - resources.START_SECONDS == pytest.approx(2 * (fast.seconds - resources.START_SECONDS))
        assert (slow.cpus, fast.cpus) == (1, 2)


def test_a_long_run_takes_more_gpus_up_to_its_sequences(folder: Path) -> None:
    """128 tokens of context 32 are four sequences; a power of two, no more than are allowed, and as many for each."""
    for allowed, hours, expected in ((1, 1e-9, 1), (8, 1e-9, 4), (3, 1e-9, 2), (8, 1e9, 1)):
        hardware = SLOW | {"gpus_per_run": allowed, "hours_per_run": hours}
        plan, workflow = planned(folder, hardware=hardware)
        alone = needs(*planned(folder, hardware=SLOW), gpu=True)
        for name in plan.runs:
            found = needs(plan, workflow, gpu=True)[name]
            assert (found.gpus, found.cpus) == (expected, expected)
            start = resources.START_SECONDS
            assert found.seconds - start == pytest.approx((alone[name].seconds - start) / expected)
    edit(folder, "training.yaml", "smoke: 128", "smoke: 192")
    plan, workflow = planned(folder, hardware=SLOW | {"gpus_per_run": 8, "hours_per_run": 1e-9})
    (six,) = (name for name, run in plan.runs.items() if run.training.batch_size == 6)
    assert needs(plan, workflow, gpu=True)[six].gpus == 2


def test_a_run_that_does_not_fit_takes_more_gpus(folder: Path) -> None:
    plan, _ = planned(folder)
    (base,) = (name for name, run in plan.runs.items() if run.parent is None)
    peaks = {gpus: peak_memory(plan.runs[base], gpus).total for gpus in (1, 2, 4)}
    assert peaks[1] > peaks[2] > peaks[4]
    for memory, expected in ((peaks[1], 1), (peaks[1] - 1, 2), (peaks[2] - 1, 4), (1.0, 4)):
        hardware = {"gpus_per_run": 8, "gpu_memory_gb": memory / 1e9}
        found = needs(*planned(folder, hardware=hardware), gpu=True)[base]
        assert (found.gpus, found.gpu_memory_mb) == (expected, math.ceil(peaks[expected] / 1e6))


def test_a_measurement_takes_the_tokens_that_it_reads(folder: Path) -> None:
    kinds = ("position_loss", "restart_loss", "effective_remembrance", "state_statistics")
    figure(folder, "lg_fig5", measurements=[{"kind": kind, "length": 1024, "sequences": 3} for kind in kinds])
    plan, workflow = planned(folder, figures=["lg_fig5"], hardware=SLOW)
    found = needs(plan, workflow, gpu=True)
    windows = sum(max(1, k // 2) for k in octaves(32, 1024))
    read = {
        "position_loss": 3 * 1024,
        "restart_loss": 3 * windows * 32,
        "effective_remembrance": 3 * (1024 + int(bin_edges(1024)[1:].sum())),
        "state_statistics": 3 * 1024,
    }
    for name, task in plan.measurements.items():
        assert task.run is not None
        seconds = read[task.measurement.kind] * operations_per_token(task.run.model, 256, 1024) / 0.5e6
        assert found[name].seconds - resources.START_SECONDS == pytest.approx(seconds, rel=0.02)
        assert found[name].gpus == 1


def test_measurements_that_no_figure_plans_take_what_they_read(folder: Path) -> None:
    plan, workflow = planned(folder, hardware=SLOW)
    run = next(iter(plan.runs.values()))
    restarts = RestartLoss(length=1000, sequences=3, context=32, everywhere=True)
    for measurement, read in (
        (restarts, 3 * len(range(16, 1000, 16)) * 32),  # a window for every 16 targets, from the 16th on
        (Passkey(lengths=(300, 500), depths=(0.0, 1.0), trials=4), 8 * 800),
    ):
        task = MeasurementTask(measurement=measurement, run=run)
        found = needs(replace(plan, measurements={task.id: task}), workflow, gpu=True)[task.id]
        seconds = read * operations_per_token(run.model, 256, 500) / 0.5e6
        assert found.seconds - resources.START_SECONDS == pytest.approx(seconds, rel=0.02)
        assert found.gpus == 1


def test_passes_are_those_of_the_measurements() -> None:
    assert {"cuda": resources.PASS_TOKENS[True], "cpu": resources.PASS_TOKENS[False]} == stream.FORWARD_TOKENS


def test_tables_of_tables_and_of_specs_need_no_gpu(folder: Path) -> None:
    kinds = [{"kind": "position_loss", "length": 64}, {"kind": "length_class"}, {"kind": "model_size"}]
    figure(folder, "lg_fig5", measurements=kinds)
    plan, workflow = planned(folder, figures=["lg_fig5"])
    found = needs(plan, workflow, gpu=True)
    gpus = {task.measurement.kind: found[name].gpus for name, task in plan.measurements.items()}
    assert gpus == {"position_loss": 1, "length_class": 0, "model_size": 0}


def test_memory_and_disk_hold_the_weights_and_their_moments(folder: Path) -> None:
    figure(folder, "lg_fig5", models=["large"])
    edit(folder, "models.yaml", "d_model: {paper: 512}", "d_model: 512")
    plan, workflow = planned(folder, figures=["lg_fig5"])
    found = needs(plan, workflow, gpu=True)
    for name, run in plan.runs.items():
        parameters = parameter_count(run.model, 256)
        assert found[name].memory_mb == resources.MEMORY_MB[True] + math.ceil(24 * parameters / 1e6)
        assert found[name].disk_mb == math.ceil((16 * parameters + 64 * run.training.budget.steps) / 1e6)
        assert found[name].gpu_memory_mb == math.ceil(peak_memory(run).total / 1e6)
    host = needs(plan, workflow, gpu=False)
    for name, run in plan.runs.items():
        peak = peak_memory(run).total
        assert peak > 16 * parameter_count(run.model, 256)
        assert host[name].memory_mb == resources.MEMORY_MB[False] + math.ceil(1.5 * peak / 1e6)
        assert host[name].gpu_memory_mb == 0
    two = {"gpus_per_run": 2, "hours_per_run": 1e-9}
    shared = needs(*planned(folder, figures=["lg_fig5"], hardware=two), gpu=True)
    for name, run in plan.runs.items():
        assert shared[name].gpus == 2
        copies = math.ceil(36 * parameter_count(run.model, 256) / 1e6)
        assert shared[name].memory_mb == 2 * resources.MEMORY_MB[True] + copies, "each reads a checkpoint"
    (data,) = plan.data
    assert found[data].disk_mb == math.ceil(2 * max(map(training_tokens, plan.runs.values())) / 1e6)


def test_budgets_in_chinchillas_count_the_parameters(folder: Path) -> None:
    edit(folder, "training.yaml", "budget: {steps: 100}", "budget: {chinchilla: 2}")
    plan, _ = planned(folder)
    (base,) = (run for run in plan.runs.values() if run.parent is None)
    tokens = 2 * 20 * parameter_count(base.model, 256)
    assert training_tokens(base) == round(tokens / 128) * 128


def test_what_jobs_ask_for_grows_with_the_attempt_and_stays_below_the_limit() -> None:
    need = Need(gpus=1, cpus=1, memory_mb=3000, seconds=3600, disk_mb=1)
    cluster = Cluster(max_hours=5, time_margin=2)
    assert [need.minutes_to_ask_for(cluster, attempt) for attempt in (1, 2, 3)] == [120, 240, 300]
    assert [need.memory_to_ask_for(attempt) for attempt in (1, 2)] == [3000, 6000]
    assert [need.seconds_to_train(minutes) for minutes in (10, 120, 5)] == [420, 7020, 150]
    short = Need(gpus=0, cpus=1, memory_mb=1, seconds=1, disk_mb=1)
    assert [short.minutes_to_ask_for(cluster, attempt) for attempt in (1, 2)] == [10, 20]


def test_the_config_file_shows_all_that_can_be_set() -> None:
    written = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert set(written["hardware"]) == set(Hardware.model_fields)
    assert set(written["cluster"]) == set(Cluster.model_fields)


def test_planning_all_figures_at_paper_scale_is_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not timed: specs written out and parameters counted, so many for each thing that is planned."""
    counts = dict.fromkeys(("hashed", "counted"), 0)
    content, count = Spec.content, resources.parameter_count

    def counting(name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(Spec, "content", counting("hashed", content))
    monkeypatch.setattr(resources, "parameter_count", counting("counted", count))
    library = load_config(ROOT / "config", "paper")
    plan = make_plan(library)
    things = len(plan.runs) + len(plan.measurements) + len(plan.data)
    assert things > 200
    needs(plan, library.workflow, gpu=True)
    assert counts["hashed"] < 12 * things
    assert counts["counted"] < 3 * things
