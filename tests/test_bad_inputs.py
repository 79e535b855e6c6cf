"""Bad input ends with a non-zero code and one clear line, and nothing that existed is lost or half written."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small import make_store, run_spec

from ssm.base.files import write_json
from ssm.cli.main import main
from ssm.models.checkpoint import load_tensors, save_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.training.loop import train

CONFIG = Path(__file__).parents[1] / "config"


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good inputs of every kind; each test breaks one in a copy."""
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(CONFIG, folder / "config")
    store = make_store(folder, documents=12)
    base = run_spec(store.spec, budget={"steps": 2})
    child = run_spec(store.spec, parent=base, budget={"steps": 2})
    stranger = run_spec(store.spec, seed=9, budget={"steps": 2})
    for name, run in {"base": base, "child": child, "stranger": stranger}.items():
        write_json(folder / f"{name}.json", run.content())
    for name, run in {"base": base, "stranger": stranger}.items():
        train(run, store, folder / "runs" / name, torch.device("cpu"))
    curve = PositionLoss(length=64, sequences=4)
    tasks = {
        "task": curve,
        "far": EffectiveRemembrance(length=10**6, sequences=2),
        "class": LengthClass(of=curve, context=16),
    }
    for name, measurement in tasks.items():
        write_json(folder / f"{name}.json", MeasurementTask(measurement=measurement, run=base).content())
    write_json(folder / "data.json", store.spec.content())
    (folder / "texts.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (folder / "empty").mkdir()
    assert main(["plan", "--config", str(CONFIG), "--figures", "lg_fig4", "--write", str(folder / "specs")]) == 0
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path} does not hold {old!r}"
    path.write_text(text.replace(old, new, 1))


def data(w: Path, **changes: object) -> list[str]:
    """`ssm tokenize` of a changed data spec."""
    content = json.loads((w / "data.json").read_text())
    write_json(w / "changed.json", content | changes)
    return ["tokenize", f"{w}/changed.json", "--out", f"{w}/new-tokens"]


def files(w: Path, *names: str, **changes: str) -> list[str]:
    return data(w, corpus={"kind": "files", "paths": [str(w / name) for name in names]} | changes)


def plan(w: Path, *more: str) -> list[str]:
    return ["plan", "--config", f"{w}/config", "--write", f"{w}/new-specs", *more]


def training(w: Path, run: str = "base", out: str = "new-run", *more: str) -> list[str]:
    return ["train", f"{w}/{run}.json", "--tokens", f"{w}/tokens", "--out", f"{w}/{out}", "--device", "cpu", *more]


def measuring(w: Path, task: str = "task", *more: str, run: str = "base") -> list[str]:
    given = ["--run", f"{w}/runs/{run}", "--tokens", f"{w}/tokens", *more]
    return ["evaluate", f"{w}/{task}.json", "--out", f"{w}/new.parquet", "--device", "cpu", *given]


def shard(w: Path) -> Path:
    return max((w / "tokens").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def spoil_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors, header = load_tensors(path)
    change(tensors)
    save_tensors(path, tensors, header)


def at_step(step: int) -> Callable[[Path], object]:
    """The checkpoint of a run, which says that so many steps are done."""

    def change(w: Path) -> None:
        path = w / "runs/base/checkpoint.safetensors"
        tensors, header = load_tensors(path)
        save_tensors(path, tensors, header | {"step": step})

    return change


def other_weights(w: Path) -> None:
    """Weights of the same run that are whole, and not those that its record names."""
    spoil_weights(w / "runs/base/model.safetensors", lambda tensors: tensors["norm.weight"].mul_(2))


def unlike(path: Path, **changes: object) -> None:
    """A spec with other values at its top."""
    write_json(path, json.loads(path.read_text()) | changes)


def model_of(w: Path, **changes: object) -> None:
    content = json.loads((w / "base.json").read_text())
    unlike(w / "base.json", model=content["model"] | changes)


LG5 = "config/figures/lg_fig5.yaml"
CHAIN = "arms:\n  a0: {label: A, training: official}\n" + "".join(
    f"  a{n}: {{label: A, training: posttrain, from: a{n - 1}}}\n" for n in range(1, 3000)
)

# name: (how the world is broken, the command, what the line must say)
CASES: dict[str, tuple[Callable[[Path], object], Callable[[Path], list[str]], str]] = {
    "unknown key in a figure": (
        lambda w: edit(w / LG5, "title:", "titel:"),
        plan,
        r"lg_fig5.yaml: unknown key 'titel'; did you mean 'title'\?",
    ),
    "unknown key in a recipe": (
        lambda w: edit(w / "config/training.yaml", "    warmup: 0.1", "    warm_up: 0.1"),
        plan,
        r"training.yaml.*unknown key 'warm_up'; did you mean 'warmup'\?",
    ),
    "wrong type": (
        lambda w: edit(w / "config/training.yaml", "weight_decay: 0.01", "weight_decay: heavy"),
        plan,
        r"training.yaml.*weight_decay: expected a number, got 'heavy'",
    ),
    "impossible combination": (
        lambda w: edit(w / "config/training.yaml", "smoke: 512", "smoke: 500"),
        plan,
        "must be a multiple of context 32",
    ),
    "heads that do not fit": (
        lambda w: edit(w / "config/models.yaml", "head_dim: 32", "head_dim: 48"),
        plan,
        "models.yaml.*head_dim 48 must divide",
    ),
    "unknown model": (
        lambda w: edit(w / "config/figures/lg_fig4.yaml", "[mamba2-slow]", "[mamba2-slwo]"),
        plan,
        "unknown model 'mamba2-slwo'; did you mean",
    ),
    "unknown arm in a claim": (
        lambda w: edit(w / LG5, "arm: tbtt,", "arm: tbt,"),
        plan,
        r"unknown arm 'tbt'; did you mean 'tbtt'\?",
    ),
    "unknown initial state": (
        lambda w: edit(w / LG5, "initial_state: tbtt", "initial_state: bptt"),
        plan,
        "bptt.*did you mean 'tbtt'",
    ),
    "unknown measurement": (
        lambda w: edit(w / LG5, "kind: restart_loss", "kind: restart_los"),
        plan,
        "restart_los.*did you mean 'restart_loss'",
    ),
    "a claim that could not be refuted": (
        lambda w: edit(w / LG5, "{above: 1.1}", "{}"),
        plan,
        "could not be refuted",
    ),
    "yaml that is not yaml": (lambda w: edit(w / LG5, "arms:", "arms: [}"), plan, r"lg_fig5.yaml:\d+"),
    "a key given twice": (
        lambda w: edit(w / LG5, "headline: true", "headline: true\nheadline: false"),
        plan,
        "headline.*twice|duplicate",
    ),
    "a figure that does not exist": (
        lambda w: None,
        lambda w: plan(w, "--figures", "lg_fig55"),
        "lg_fig55.*did you mean 'lg_fig5'",
    ),
    "a scale that does not exist": (
        lambda w: edit(w / "config/config.yaml", "scale: smoke", "scale: smok"),
        plan,
        "smok.*did you mean 'smoke'",
    ),
    "missing corpus": (lambda w: None, lambda w: files(w, "nowhere"), "nowhere"),
    "a glob that matches nothing": (lambda w: None, lambda w: files(w, "*.nothing"), r"\*\.nothing"),
    "empty folder": (lambda w: None, lambda w: files(w, "empty"), "empty"),
    "empty file": (lambda w: (w / "void.txt").write_text(""), lambda w: files(w, "void.txt"), "void.txt|no text|empty"),
    "a JSONL row without the key": (
        lambda w: edit(w / "texts.jsonl", '{"text": "two"}', '{"txt": "two"}'),
        lambda w: files(w, "texts.jsonl"),
        r"texts.jsonl:2.*'text'",
    ),
    "a JSONL row that is not JSON": (
        lambda w: edit(w / "texts.jsonl", '{"text": "two"}', '{"text": "two'),
        lambda w: files(w, "texts.jsonl"),
        "texts.jsonl:2",
    ),
    "a Parquet file without the column": (
        lambda w: pq.write_table(pa.table({"txt": ["a", "b"]}), w / "t.parquet"),
        lambda w: files(w, "t.parquet"),
        r"t.parquet.*'text'.*did you mean 'txt'\?",
    ),
    "a tokenizer that is not there": (
        lambda w: None,
        lambda w: data(w, tokenizer={"kind": "file", "path": f"{w}/tokenizer.json", "vocab_size": 300}),
        "tokenizer.json",
    ),
    "tokens into a file": (lambda w: None, lambda w: [*data(w)[:-1], f"{w}/data.json/tokens"], "data.json"),
    "tokens over those of another corpus": (
        lambda w: None,
        lambda w: [*data(w, held_out=0.2)[:-1], f"{w}/tokens"],
        "tokens",
    ),
    "missing spec": (lambda w: (w / "base.json").unlink(), training, "base.json: no such spec"),
    "a spec that is not JSON": (lambda w: truncate(w / "base.json"), training, "base.json: not a readable JSON spec"),
    "a spec of another kind": (lambda w: None, lambda w: training(w, "data"), "data.json: unknown key"),
    "missing tokens": (lambda w: shutil.rmtree(w / "tokens"), training, "tokens"),
    "truncated shard": (lambda w: truncate(shard(w)), training, "tokens"),
    "wrong checksum": (lambda w: flip(shard(w)), training, "checksum|SHA-256|changed"),
    "a run without its parent": (lambda w: None, lambda w: training(w, "child"), "give its folder as --parent"),
    "another run's parent": (
        lambda w: None,
        lambda w: training(w, "child", "new-run", "--parent", f"{w}/runs/stranger"),
        "holds the run",
    ),
    "another run's folder": (lambda w: None, lambda w: training(w, "base", "runs/stranger"), "belongs to another run"),
    "corrupted checkpoint": (
        lambda w: truncate(w / "runs/base/checkpoint.safetensors"),
        lambda w: training(w, "base", "runs/base"),
        "checkpoint.safetensors: truncated or corrupted",
    ),
    "training into a file": (lambda w: None, lambda w: training(w, "base", "data.json"), "data.json"),
    "truncated weights": (
        lambda w: truncate(w / "runs/base/model.safetensors"),
        measuring,
        "model.safetensors: truncated or corrupted",
    ),
    "weights that are not finite": (
        lambda w: spoil_weights(w / "runs/base/model.safetensors", lambda t: t["norm.weight"].fill_(float("nan"))),
        measuring,
        "norm.weight is not finite",
    ),
    "a missing weight": (
        lambda w: spoil_weights(w / "runs/base/model.safetensors", lambda t: t.pop("norm.weight")),
        measuring,
        "missing norm.weight",
    ),
    "the weights of another run": (lambda w: None, lambda w: measuring(w, run="stranger"), "the task needs"),
    "a run that has not finished": (lambda w: (w / "runs/base/run.json").unlink(), measuring, "has not finished"),
    "measuring without a run": (lambda w: None, lambda w: measuring(w)[:-4], "needs --run"),
    "text shorter than the length": (
        lambda w: None,
        lambda w: measuring(w, "far"),
        "1000001|1,000,001|1000000|1,000,000",
    ),
    "a class without its curve": (lambda w: None, lambda w: measuring(w, "class"), "needs --table"),
    "a table that is not Parquet": (
        lambda w: None,
        lambda w: measuring(w, "class", "--table", f"{w}/data.json"),
        "not a readable Parquet file",
    ),
    "a table of another kind": (
        lambda w: None,
        lambda w: measuring(w, "class", "--table", f"{w}/runs/base/metrics.parquet"),
        "holds the schema 'metrics', expected 'position_loss'",
    ),
    "judging without tables": (
        lambda w: None,
        lambda w: ["judge", f"{w}/specs/figures/lg_fig4.json", "--tables", f"{w}/empty", "--out", f"{w}/v.parquet"],
        r"empty/.*\.parquet",
    ),
    "drawing without tables": (
        lambda w: None,
        lambda w: ["plot", f"{w}/specs/figures/lg_fig4.json", "--tables", f"{w}/empty", "--out", f"{w}/pictures"],
        r"empty/.*\.parquet",
    ),
    "a report on nothing": (lambda w: None, lambda w: ["report", f"{w}/empty", "--out", f"{w}/r.html"], "empty"),
    "verdicts of nothing": (lambda w: None, lambda w: ["verdicts", f"{w}/empty"], "empty"),
    "no threads": (lambda w: None, lambda w: training(w, "base", "new-run", "--threads", "0"), "above zero, got '0'"),
    "a checkpoint every 0 steps": (
        lambda w: None,
        lambda w: training(w, "base", "new-run", "--checkpoint-steps", "0"),
        "above zero, got '0'",
    ),
    "negative time between checkpoints": (
        lambda w: None,
        lambda w: training(w, "base", "new-run", "--checkpoint-seconds", "-5"),
        "above zero, got '-5'",
    ),
    "a seed that stands twice": (
        lambda w: edit(w / LG5, "seeds: {smoke: [", "seeds: {smoke: [21, 21, "),
        plan,
        r"lg_fig5.yaml: seeds: 21 stands twice",
    ),
    "a model that stands twice": (
        lambda w: edit(w / LG5, "[mamba2-slow]", "[mamba2-slow, mamba2-slow]"),
        plan,
        r"lg_fig5.yaml: models: 'mamba2-slow' stands twice",
    ),
    "a planned figure with a seed twice": (
        lambda w: unlike(
            w / "specs/figures/lg_fig4.json",
            series=json.loads((w / "specs/figures/lg_fig4.json").read_text())["series"] * 2,
        ),
        lambda w: ["judge", f"{w}/specs/figures/lg_fig4.json", "--tables", f"{w}/empty", "--out", f"{w}/v.parquet"],
        "an arm of a panel stands twice with the same seed",
    ),
    "a figure that is asked for twice": (
        lambda w: None,
        lambda w: plan(w, "--figures", "lg_fig5", "lg_fig5"),
        "figures: 'lg_fig5' stands twice",
    ),
    "no figures": (lambda w: None, lambda w: plan(w, "--set", "figures=[]"), r"figures: expected 'all' or a list"),
    "results with a wildcard": (
        lambda w: None,
        lambda w: plan(w, "--set", "results=a{run}b"),
        "results: expected the name of a folder, without { and }, got 'a{run}b'",
    ),
    "results nowhere": (lambda w: None, lambda w: plan(w, "--set", "results="), "results: expected"),
    "a bound that is no number": (
        lambda w: edit(w / LG5, "expected: &breaks {above: 1.1}", "expected: &breaks {above: .nan}"),
        plan,
        "lg_fig5.yaml: not a readable YAML file .*above: not a number stands for no setting",
    ),
    "a budget without end": (
        lambda w: None,
        lambda w: plan(w, "--set", "hardware={hours_per_run: .inf}"),
        "hours_per_run: infinity stands for no setting",
    ),
    "an alias of itself": (
        lambda w: (w / LG5).write_text((w / LG5).read_text() + "itself: &a [*a]\n"),
        plan,
        "lg_fig5.yaml: not a readable YAML file .*nested more than 48 deep",
    ),
    "a million layers": (
        lambda w: edit(w / "config/models.yaml", "n_layers: ", "n_layers: 1000000"),
        plan,
        "n_layers: expected a number up to 1000, got 1000000[0-9]+",
    ),
    "a chain of 3,000 arms": (
        lambda w: (w / LG5).write_text(re.sub(r"(?ms)^arms:.*?^(?=measurements:)", CHAIN, (w / LG5).read_text())),
        plan,
        "arms: expected at most 100 entries",
    ),
    "a name of 5,000 characters": (
        lambda w: model_of(w, name="n" * 5000),
        training,
        "model.name: expected at most 80 characters, got 'nnn",
    ),
    "a model of a petabyte": (
        lambda w: model_of(w, d_model=2**40),
        training,
        "model.d_model: expected a number up to 131072, got 1099511627776",
    ),
    "a spec that is nested without end": (
        lambda w: (w / "base.json").write_text('{"a":' * 100_000),
        training,
        "base.json: not a readable JSON spec .*nested more than",
    ),
    "a long value with an escape": (
        lambda w: None,
        lambda w: plan(w, "--scale", "\x1b[2J\n" + "x" * 1_000_000),
        r"unknown name '\\x1b\[2J\\nx+ \.\.\. x+'; valid names: gpu, paper, smoke$",
    ),
    "weights that are not the record's": (other_weights, measuring, "not the weights that .*run.json names"),
    "weights with another bit": (
        lambda w: flip(w / "runs/base/model.safetensors"),
        measuring,
        r"model.safetensors: damaged: its content is not what was written \(SHA-256 differs\)",
    ),
    "metrics with another bit": (
        lambda w: flip(w / "runs/base/metrics.parquet"),
        lambda w: measuring(w, "class", "--table", f"{w}/runs/base/metrics.parquet"),
        "metrics.parquet: damaged",
    ),
    "a checkpoint before the first step": (
        at_step(-1),
        lambda w: training(w, "base", "runs/base"),
        "says that step -1 is done, the run has 2 steps",
    ),
    "a checkpoint past the last step": (
        at_step(99),
        lambda w: training(w, "base", "runs/base"),
        "says that step 99 is done, the run has 2 steps",
    ),
    "a hundred thousand threads": (
        lambda w: None,
        lambda w: training(w, "base", "new-run", "--threads", "100000"),
        "--threads 100000: expected 1024 at most",
    ),
    "an option without its value": (lambda w: None, lambda w: ["train", "--out"], r"expected one argument \(see `ssm"),
    "an unknown verb": (lambda w: None, lambda w: ["trian"], r"unknown verb 'trian'; did you mean 'train'\?"),
}


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_with_one_clear_line(
    case: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "w"
    shutil.copytree(world, broken)
    break_it, command, says = CASES[case]
    break_it(broken)
    arguments = command(broken)
    before = contents(broken)
    capsys.readouterr()
    code = main(arguments)
    error = capsys.readouterr().err
    assert code != 0
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(says, error), error
    assert contents(broken) == before
