"""The commands of the workflow, called by hand: a corpus becomes a token store, and a task becomes a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan.mini import edit, figure, write_config

from ssm.base.files import write_json
from ssm.base.tables import METRICS, read_provenance, read_table
from ssm.cli.main import main
from ssm.data.store import TokenStore
from ssm.plan import load_config, make_plan
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import DataSpec
from ssm.specs.measurements.accuracy import Accuracy

COPY = "\ncopy: {task: copy, alphabet: 4, mix: [{shortest: 2, longest: 5}]}\n"


def test_a_finished_token_store_is_not_built_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(f"document {number}\n" * 5)
    spec = DataSpec(name="x", corpus=FilesCorpus(paths=(str(tmp_path / "*.txt"),)))
    write_json(tmp_path / "spec.json", spec.content())
    command = ["tokenize", str(tmp_path / "spec.json"), "--out", str(tmp_path / "deep/tokens"), "--workers", "2"]
    assert main(command) == 0
    train = TokenStore.open(tmp_path / "deep/tokens").train
    printed = capsys.readouterr().out
    assert f"{train.n_tokens:,} train tokens in {len(train.documents)} documents" in printed
    assert main(command) == 0
    assert capsys.readouterr().out == printed.replace("tokens: ", "tokens: already there, nothing done: ", 1)


def test_a_text_that_is_too_short_for_a_measurement_is_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, results = write_config(tmp_path / "config"), tmp_path / "results"
    (tmp_path / "texts").mkdir()
    for number in range(60):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"This is document {number}. " * 4)
    edit(config, "data.yaml", "{kind: stdlib}", f"{{kind: files, paths: [{tmp_path}/texts]}}")
    edit(config, "training.yaml", "budget: {steps: 100}", "budget: {steps: 2}")

    def trained(times_context: int) -> int:
        measurement = {"kind": "position_loss", "times_context": times_context, "sequences": 2}
        arms = {"base": {"label": "Base", "training": "pretrain"}}
        figure(config, "lg_tab1", arms=arms, measurements=[measurement], drawings=[{"kind": "position_curves"}])
        plan = make_plan(load_config(config, figures=["lg_tab1"]))
        (data_id,), (run,) = plan.data, plan.runs
        specs = results / "specs"
        assert main(f"plan --config {config} --figures lg_tab1 --write {specs}".split()) == 0
        assert main(f"tokenize {specs}/data/{data_id}.json --out {results}/tokens".split()) == 0
        tokens = f"--tokens {results}/tokens --windows {specs}/windows"
        return main(f"train {specs}/runs/{run}.json {tokens} --device cpu --out {results}/run".split())

    assert trained(64) != 0
    held_out = TokenStore.open(results / "tokens").held_out.n_tokens
    assert f"position_loss would fail after training: {results}/tokens (held_out): {held_out} tokens, length 2048" in (
        capsys.readouterr().err
    )
    assert not (results / "run").exists()
    for said in (": finished, 2 steps, ", ": had ended before this call: finished, 2 steps, "):
        assert trained(4) == 0
        assert said in capsys.readouterr().err
    assert (results / "run" / "run.json").is_file()


def test_a_task_from_the_config_files_to_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, results = write_config(tmp_path / "config"), tmp_path / "results"
    data = config / "data.yaml"
    data.write_text(data.read_text() + COPY)
    edit(config, "training.yaml", "budget: {steps: 100}", "budget: {steps: 6}")
    arms = {"sp": {"label": "SP", "training": "pretrain", "initial_state": "state_passing"}}
    figure(config, "lg_tab1", data="copy", arms=arms, measurements=[{"kind": "accuracy", "lengths": [4, 9]}])
    plan = make_plan(load_config(config, figures=["lg_tab1"]))
    (data_id,), (run,), (table,) = plan.data, plan.runs, plan.measurements
    specs, tokens = results / "specs", f"--tokens {results}/tokens --device cpu"
    for command in (
        f"plan --config {config} --write {specs}",
        f"tokenize {specs}/data/{data_id}.json --out {results}/tokens",
        f"train {specs}/runs/{run}.json {tokens} --out {results}/run",
        f"evaluate {specs}/measurements/{table}.json {tokens} --run {results}/run --out {results}/t.parquet",
    ):
        assert main(command.split()) == 0
    assert "the manifest of task copy, vocabulary 8" in capsys.readouterr().out
    assert read_table(results / "run" / "metrics.parquet", METRICS)["accuracy"].len() == 6
    accuracies = read_table(results / "t.parquet", Accuracy.table)
    assert accuracies.group_by("length").len().sort("length").rows() == [(4, 128), (9, 128)]
    assert read_provenance(results / "t.parquet")["seed"] == 11
