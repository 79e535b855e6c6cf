"""A figure of a task, verb by verb as the workflow calls them: from the config folder to its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan.mini import edit, figure, write_config

from ssm.base.tables import METRICS, read_provenance, read_table
from ssm.cli.main import main
from ssm.plan import load_config, make_plan
from ssm.specs.measurements.accuracy import Accuracy

COPY = "\ncopy: {task: copy, alphabet: 4, mix: [{shortest: 2, longest: 5}]}\n"


def test_a_task_from_its_description_to_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, results = write_config(tmp_path / "config"), tmp_path / "results"
    data = config / "data.yaml"
    data.write_text(data.read_text() + COPY)
    edit(config, "training.yaml", "budget: {steps: 100}", "budget: {steps: 6}")
    arms = {"sp": {"label": "SP", "training": "pretrain", "initial_state": "state_passing"}}
    figure(config, "lg_tab1", data="copy", arms=arms, measurements=[{"kind": "accuracy", "lengths": [4, 9]}])
    plan = make_plan(load_config(config, figures=["lg_tab1"]))
    (data_id,), (run,), (table,) = plan.data, plan.runs, plan.measurements
    specs = results / "specs"
    verbs = [
        ["plan", "--config", config, "--write", specs],
        ["tokenize", specs / "data" / f"{data_id}.json", "--out", results / "tokens"],
        ["train", specs / "runs" / f"{run}.json", "--tokens", results / "tokens", "--out", results / "run"],
        [
            *("evaluate", specs / "measurements" / f"{table}.json", "--run", results / "run"),
            *("--tokens", results / "tokens", "--out", results / "t.parquet"),
        ],
    ]
    for verb in verbs:
        assert main([*map(str, verb), *(["--device", "cpu"] if verb[0] in ("train", "evaluate") else [])]) == 0
    told = capsys.readouterr().out
    assert "the manifest of task copy, vocabulary 8" in told
    assert read_table(results / "run" / "metrics.parquet", METRICS)["accuracy"].len() == 6
    found = read_table(results / "t.parquet", Accuracy.table)
    assert found.group_by("length").len().sort("length").rows() == [(4, 128), (9, 128)]
    assert read_provenance(results / "t.parquet")["seed"] == 11
    other = results / "run" / "run.json"
    assert main(["tokenize", str(other), "--out", str(results / "x")]) == 2
