"""Arms that repair the weights of another arm without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.plan import Inputs, Plan, load_config, make_plan
from ssm.plan.parameters import operations_per_token
from ssm.plan.resources import MEMORY_MB, START_SECONDS, needs

BASE = {"label": "Base", "training": "pretrain"}
SCALED = {"label": "Scaled", "from": "base", "repair": {"kind": "scale_a", "factors": [2, 8], "times_context": 4}}
RESET = {"label": "Reset", "from": "base", "repair": {"kind": "reset_state"}}


@pytest.fixture
def folder(folder: Path) -> Path:
    edit(folder, "data.yaml", "text: {corpus: {kind: stdlib}}", "text: {corpus: {kind: stdlib}, choice: 0.1}")
    return folder


def planned(
    folder: Path, measured: str = "position_loss", overrides: dict[str, Any] | None = None, **arms: Any
) -> Plan:
    measurement = {"kind": measured} | ({} if measured == "compute" else {"times_context": 16})
    plot = {"kind": "curves", "measurement": measured, "x": "stage", "column": "read"}
    drawings = [plot if measured == "compute" else {"kind": "position_curves"}]
    if measured == "state_statistics":
        drawings = [{"kind": "state_norm"}]
    figure(folder, "x_mine", paper="x", arms={"base": BASE, **arms}, measurements=[measurement], drawings=drawings)
    return make_plan(load_config(folder, figures=["x_mine"], overrides=overrides or {}))


def test_a_repair_is_a_run_with_its_parents_weights(folder: Path) -> None:
    plan = planned(folder, scaled=SCALED)
    base, scaled = (plan.runs[series.run] for series in plan.figures["x_mine"].series)
    assert (scaled.parent, scaled.training.budget.steps, scaled.training.context) == (base, 0, 32)
    assert plan.inputs[scaled.id] == Inputs(data=base.data.id, run=base.id)
    assert "_scale-a_s1-" in scaled.id
    assert scaled.start == base.id
    other = planned(folder, scaled=SCALED | {"repair": {"kind": "scale_a", "by": "layer"}})
    assert "_scale-a-by-layer_s1-" in other.figures["x_mine"].series[1].run


def test_the_job_of_a_repair_reads_every_trial(folder: Path) -> None:
    """The unchanged model and two factors: 3 trials of 16 windows of 128 tokens."""
    plan = planned(folder, overrides={"hardware": {"cpu_gflops": 1e-3, "cpu_layer_ms": 0.0}}, scaled=SCALED)
    (run,) = (run for run in plan.runs.values() if run.repair is not None)
    assert run.repair is not None
    assert run.repair.tokens_read(run.model, 32) == 3 * 16 * 128
    workflow = load_config(folder, overrides={"hardware": {"cpu_gflops": 1e-3, "cpu_layer_ms": 0.0}}).workflow
    found = needs(plan, workflow, gpu=False)[run.id]
    operations = 3 * 16 * 128 * operations_per_token(run.model, 256, 128)
    assert found.seconds == pytest.approx(START_SECONDS[False] + operations / 1e6, rel=1e-3)
    assert (found.gpus, found.memory_mb) == (0, MEMORY_MB[False] + 1)


def test_a_dry_run_of_a_repair_reads_less(folder: Path) -> None:
    plan = planned(folder, overrides={"dry_run": {"max_sequences": 2, "max_contexts": 3}}, scaled=SCALED)
    (repair,) = (run.repair for run in plan.runs.values() if run.repair is not None)
    assert (repair.sequences, repair.times_context) == (2, 3.0)


def test_a_repair_has_the_model_of_its_parent(folder: Path) -> None:
    with (folder / "models.yaml").open("a") as models:
        models.write(
            "other: {d_model: 32, n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}, peak_lr: 4e-3}\n"
        )
    plan = planned(folder, own=BASE | {"label": "Own", "model": "other"}, scaled=SCALED | {"from": "own"})
    (run,) = (run for run in plan.runs.values() if run.repair is not None)
    assert run.model.name == "other"


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        ({"scaled": {**SCALED, "training": "posttrain"}}, "one of 'training' .*, 'repair' .* and 'snapshot_of'"),
        ({"scaled": {key: SCALED[key] for key in ("label", "repair")}}, "'repair' needs 'from'"),
        (
            {"scaled": {**SCALED, "initial_state": "state_passing"}},
            "a repair is not trained: leave 'initial_state' out",
        ),
        ({"scaled": {**SCALED, "data": "keys"}}, "leave 'layer', 'model' and 'data' out"),
        ({"scaled": {**SCALED, "repair": {"kind": "scale_b"}}}, "arms.scaled.repair"),
        (
            {"scaled": {**SCALED, "repair": {"kind": "clip_dt", "limit": [1]}}},
            "unknown key 'limit'; did you mean 'limits'",
        ),
        (
            {"scaled": SCALED, "more": {**BASE, "label": "More", "from": "scaled"}},
            r"starts from a repaired model \(scale_a\); name a trained model",
        ),
        (
            {"scaled": SCALED, "early": {"label": "E", "snapshot_of": "scaled", "at": 0.5}},
            "'scaled' is not trained here",
        ),
    ],
)
def test_an_impossible_repair_is_one_line(folder: Path, arms: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(folder, **arms)


def test_a_text_without_a_part_for_choices_is_refused(folder: Path) -> None:
    edit(folder, "data.yaml", ", choice: 0.1", "")
    with pytest.raises(ConfigError, match=r"arms.scaled: .*'text' has none: give it 'choice'"):
        planned(folder, scaled=SCALED)


def test_a_measurement_inside_the_model_refuses_a_way_of_reading(folder: Path) -> None:
    planned(folder, "state_statistics", scaled=SCALED)
    planned(folder, reset=RESET)
    planned(folder, "compute", reset=RESET)
    with pytest.raises(
        ConfigError, match=r"state_statistics \(arm 'reset'\): reads inside the model, which is not possible"
    ):
        planned(folder, "state_statistics", reset=RESET)


def test_a_measurement_on_examples_refuses_it_too(folder: Path) -> None:
    """A map is inside the model. The accuracy of its answers is not."""
    accuracy = {"kind": "accuracy", "task": "keys"}
    attention = {"kind": "attention_map", "task": "keys", "length": 256}
    drawings = [{"kind": "curves", "measurement": "accuracy", "x": "length", "column": "forced_share"}]
    arms = {"base": BASE, "reset": RESET}
    figure(folder, "x_mine", paper="x", arms=arms, measurements=[accuracy], drawings=drawings)
    make_plan(load_config(folder, figures=["x_mine"]))
    figure(folder, "x_mine", paper="x", arms=arms, measurements=[accuracy, attention], drawings=drawings)
    with pytest.raises(ConfigError, match=r"attention_map \(arm 'reset'\): reads inside the model"):
        make_plan(load_config(folder, figures=["x_mine"]))
