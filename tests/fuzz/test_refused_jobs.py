"""What the commands of jobs refuse: a non-zero code, one clear line, and nothing that existed lost or half written."""

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

CONFIG = Path(__file__).parents[2] / "config"


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

# name: (how the world is broken, the command, what the line must say)
CASES: dict[str, tuple[Callable[[Path], object], Callable[[Path], list[str]], str]] = {
    "unknown key in a figure": (
        lambda w: edit(w / LG5, "title:", "titel:"),
        plan,
        r"lg_fig5.yaml: unknown key 'titel'; did you mean 'title'\?",
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
        "has the schema 'metrics', expected 'position_loss'",
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
    "a planned figure with a seed twice": (
        lambda w: unlike(
            w / "specs/figures/lg_fig4.json",
            series=json.loads((w / "specs/figures/lg_fig4.json").read_text())["series"] * 2,
        ),
        lambda w: ["judge", f"{w}/specs/figures/lg_fig4.json", "--tables", f"{w}/empty", "--out", f"{w}/v.parquet"],
        "an arm of a panel is given twice with the same seed",
    ),
    "a budget without end": (
        lambda w: None,
        lambda w: plan(w, "--set", "hardware={hours_per_run: .inf}"),
        "hours_per_run: infinity is not a valid value",
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
    "weights that are not the record's": (other_weights, measuring, "not the weights of .*run.json"),
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
        "its step is -1, but the run has 2 steps",
    ),
    "a checkpoint past the last step": (
        at_step(99),
        lambda w: training(w, "base", "runs/base"),
        "its step is 99, but the run has 2 steps",
    ),
    "a hundred thousand threads": (
        lambda w: None,
        lambda w: training(w, "base", "new-run", "--threads", "100000"),
        "--threads 100000: expected 1024 at most",
    ),
    "an option without its value": (lambda w: None, lambda w: ["train", "--out"], r"expected one argument \(see `ssm"),
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
