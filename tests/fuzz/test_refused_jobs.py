"""Bad input for the commands of jobs: a non-zero exit code, one clear line, and no file changed or half written."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small import make_store, run_spec

from ssm.base.files import write_json
from ssm.cli.main import main
from ssm.models.weights_file import load_tensors, save_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.training.loop import train

CONFIG = Path(__file__).parents[2] / "config"
Change = Callable[[Path], object]  # damages a file of a copy of the world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good inputs of every kind. Each test damages a copy."""
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(CONFIG, folder / "config")
    store = make_store(folder, documents=12)
    base = run_spec(store.spec, budget={"steps": 2})
    child = run_spec(store.spec, parent=base, budget={"steps": 2})
    other = run_spec(store.spec, seed=9, budget={"steps": 2})
    for name, run in {"base": base, "child": child, "other": other}.items():
        write_json(folder / f"{name}.json", run.content())
        if run is not child:
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
    pq.write_table(pa.table({"txt": ["a", "b"]}), folder / "t.parquet")
    (folder / "void.txt").touch()
    (folder / "empty").mkdir()
    assert main(["plan", "--config", str(CONFIG), "--figures", "lg_fig4", "--write", str(folder / "specs")]) == 0
    return folder


def nothing(w: Path) -> None:
    """The input itself is the mistake."""


def edit(file: str, old: str, new: str) -> Change:
    def change(w: Path) -> None:
        text = (w / file).read_text()
        assert old in text
        (w / file).write_text(text.replace(old, new, 1))

    return change


def values(file: str, **changes: Any) -> Change:
    """Other values at the top of a JSON file; a mapping is merged into the old value."""

    def change(w: Path) -> None:
        content = json.loads((w / file).read_text())
        merged = {key: content[key] | new if isinstance(new, dict) else new for key, new in changes.items()}
        write_json(w / file, content | merged)

    return change


def corpus(name: str) -> Change:
    """Let the data set read this file of the world."""
    return lambda w: values("data.json", corpus={"kind": "files", "paths": [str(w / name)]})(w)


def both(first: Change, second: Change) -> Change:
    return lambda w: (first(w), second(w))


def damaged(file: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda w: (w / file).write_bytes(change((w / file).read_bytes()))


def truncated(file: str) -> Change:
    return damaged(file, lambda content: content[:-3])


def flipped(file: str) -> Change:
    """One bit in the middle of a file."""
    return damaged(file, lambda c: c[: len(c) // 2] + bytes([c[len(c) // 2] ^ 1]) + c[len(c) // 2 + 1 :])


def tensors(file: str, change: Callable[[dict[str, torch.Tensor]], object], **header: Any) -> Change:
    """A file of tensors with other content, and with a right checksum."""

    def rewrite(w: Path) -> None:
        content, old = load_tensors(w / file)
        change(content)
        save_tensors(w / file, content, old | header)

    return rewrite


def unfinished(change: Change) -> Change:
    """The change, of a run that has not ended: an ended one does not read its checkpoint."""

    def both(w: Path) -> None:
        change(w)
        (w / "runs/base/run.json").unlink()

    return both


PLAN = "plan --config {w}/config --write {w}/new-specs"
TOKENIZE = "tokenize {w}/data.json --out {w}/new-tokens"
TRAIN = "train {w}/base.json --tokens {w}/tokens --out {w}/new-run --device cpu"
EVALUATE = "evaluate {w}/task.json --out {w}/new.parquet --device cpu --run {w}/runs/base --tokens {w}/tokens"
CLASSIFY = EVALUATE.replace("task.json", "class.json")
JUDGE = "judge {w}/specs/figures/lg_fig4.json --tables {w}/empty --out {w}/v.parquet"
RESUME = f"{TRAIN} --out {{w}}/runs/base"  # the last of two equal options is valid
CHILD = TRAIN.replace("base.json", "child.json")
CHECKPOINT, WEIGHTS = "runs/base/checkpoint.safetensors", "runs/base/model.safetensors"

# what is wrong, a change of the world, the command, a pattern of the message
CASES: list[tuple[str, Change, str, str]] = [
    ("unknown key in a figure", edit("config/figures/lg_fig5.yaml", "title:", "titel:"), PLAN,
     r"lg_fig5.yaml: unknown key 'titel'; did you mean 'title'\?"),
    ("a setting without a value", nothing, f"{PLAN} --set scale", "ssm plan: --set scale: expected KEY=VALUE"),
    ("a setting that is not YAML", nothing, f"{PLAN} --set scale=[", "--set scale: the value is not valid YAML"),
    ("an unknown setting", nothing, f"{PLAN} --set scael=smoke", r"did you mean 'scale'\?"),
    ("an infinite budget", nothing, f"{PLAN} --set 'hardware={{{{hours_per_run: .inf}}}}'", "hours_per_run: infinity"),

    ("missing corpus", corpus("nowhere"), TOKENIZE, "nowhere"),
    ("a glob without matches", corpus("*.nothing"), TOKENIZE, r"\*\.nothing"),
    ("empty folder", corpus("empty"), TOKENIZE, "empty"),
    ("empty file", corpus("void.txt"), TOKENIZE, "void.txt|no text|empty"),
    ("a JSONL row without the key", both(corpus("texts.jsonl"), edit("texts.jsonl", '"text": "two"', '"txt": "two"')),
     TOKENIZE, r"texts.jsonl:2.*'text'"),
    ("a JSONL row that is not JSON", both(corpus("texts.jsonl"), edit("texts.jsonl", 'two"', "two")), TOKENIZE,
     "texts.jsonl:2"),
    ("a Parquet file without the column", corpus("t.parquet"), TOKENIZE, r"t.parquet.*'text'.*did you mean 'txt'\?"),
    ("a missing tokenizer", values("data.json", tokenizer={"kind": "file", "path": "tok.json", "vocab_size": 300}),
     TOKENIZE, "tok.json"),
    ("an unknown key of a data set", edit("data.json", '"paths"', '"path"'), TOKENIZE,
     "unknown key 'path'; did you mean 'paths'"),
    ("tokens into a file", nothing, f"{TOKENIZE} --out {{w}}/data.json/tokens", "data.json"),
    ("tokens over those of another corpus", values("data.json", held_out=0.2), f"{TOKENIZE} --out {{w}}/tokens",
     "tokens: holds the token store of another spec"),

    ("missing spec", lambda w: (w / "base.json").unlink(), TRAIN, "base.json: no such spec"),
    ("a spec that is not JSON", truncated("base.json"), TRAIN, "base.json: not a readable JSON spec"),
    ("a spec of another kind", nothing, TRAIN.replace("base.json", "data.json"),
     "data.json: the spec of a data set; expected the spec of a run"),
    ("the spec of a run to tokenize", nothing, TOKENIZE.replace("data.json", "base.json"),
     "base.json: the spec of a run; expected the spec of a data set"),
    ("the spec of a run to measure", nothing, EVALUATE.replace("task.json", "base.json"),
     "base.json: the spec of a run; expected the spec of a measurement"),
    ("the spec of a measurement to judge", nothing, JUDGE.replace("specs/figures/lg_fig4.json", "task.json"),
     "task.json: the spec of a measurement; expected the spec of a figure"),
    ("a figure and schemas", nothing, "plan --schemas {w}/new --figures lg_fig5 --scale smoke",
     "ssm plan: --schemas only writes schemas: leave out --scale and --figures"),
    ("a spec with endless nesting", damaged("base.json", lambda _: b'{"a":' * 100_000), TRAIN,
     "base.json: not a readable JSON spec .*nested more than"),
    ("a name of 5,000 characters", values("base.json", model={"name": "n" * 5000}), TRAIN,
     "model.name: expected at most 80 characters, got 'nnn"),
    ("a model of a petabyte", values("base.json", model={"d_model": 2**40}), TRAIN,
     "model.d_model: expected a number up to 131072, got 1099511627776"),
    ("missing tokens", lambda w: shutil.rmtree(w / "tokens"), TRAIN, "tokens"),
    ("truncated tokens", truncated("tokens/train-00000.tokens"), TRAIN, "tokens"),
    ("tokens with another bit", flipped("tokens/train-00000.tokens"), TRAIN, "checksum|SHA-256|changed"),
    ("a run without its parent", nothing, CHILD, "give its folder as --parent"),
    ("another run's parent", nothing, f"{CHILD} --parent {{w}}/runs/other", "holds the run"),
    ("another run's folder", nothing, f"{TRAIN} --out {{w}}/runs/other", "holds another run"),
    ("truncated checkpoint", unfinished(truncated(CHECKPOINT)), RESUME,
     "checkpoint.safetensors: truncated or corrupted"),
    ("a checkpoint before the first step", unfinished(tensors(CHECKPOINT, len, step=-1)), RESUME,
     "its step is -1, but the run has 2 steps"),
    ("a checkpoint after the last step", unfinished(tensors(CHECKPOINT, len, step=99)), RESUME,
     "its step is 99, but the run has 2 steps"),
    ("training into a file", nothing, f"{TRAIN} --out {{w}}/data.json", "data.json"),
    ("no threads", nothing, f"{TRAIN} --threads 0", "above zero, got '0'"),
    ("a hundred thousand threads", nothing, f"{TRAIN} --threads 100000", "--threads 100000: expected 1 to 1024"),
    ("a checkpoint every 0 steps", nothing, f"{TRAIN} --checkpoint-steps 0", "above zero, got '0'"),
    ("negative time between checkpoints", nothing, f"{TRAIN} --checkpoint-seconds -5", "above zero, got '-5'"),
    ("an option without its value", nothing, "train --out", r"expected one argument \(see `ssm"),

    ("truncated weights", truncated(WEIGHTS), EVALUATE, "model.safetensors: truncated or corrupted"),
    ("weights with another bit", flipped(WEIGHTS), EVALUATE,
     r"model.safetensors: damaged: its content is not what was written \(SHA-256 differs\)"),
    ("weights that are not finite", tensors(WEIGHTS, lambda t: t["norm.weight"].fill_(float("nan"))), EVALUATE,
     "norm.weight is not finite"),
    ("a missing weight", tensors(WEIGHTS, lambda t: t.pop("norm.weight")), EVALUATE, "missing norm.weight"),
    ("weights that are not those of run.json", tensors(WEIGHTS, lambda t: t["norm.weight"].mul_(2)), EVALUATE,
     "not the weights .*run.json"),
    ("the weights of another run", nothing, f"{EVALUATE} --run {{w}}/runs/other", "the measurement needs"),
    ("an unfinished run", lambda w: (w / "runs/base/run.json").unlink(), EVALUATE, "has not finished"),
    ("measuring without a run", nothing, "evaluate {w}/task.json --out {w}/new.parquet --device cpu", "needs --run"),
    ("text shorter than the length", nothing, EVALUATE.replace("task.json", "far.json"), "1,?000,?00[01]"),
    ("a class without its curve", nothing, CLASSIFY, "needs --table"),
    ("a table that is not Parquet", nothing, f"{CLASSIFY} --table {{w}}/data.json", "not a readable Parquet file"),
    ("a table of another kind", nothing, f"{CLASSIFY} --table {{w}}/runs/base/metrics.parquet",
     "has the schema 'metrics', expected 'position_loss'"),
    ("a table with another bit", flipped("runs/base/metrics.parquet"),
     f"{CLASSIFY} --table {{w}}/runs/base/metrics.parquet", "metrics.parquet: damaged"),

    ("judging without tables", nothing, JUDGE, r"empty/.*\.parquet"),
    ("a planned figure with a seed twice",
     lambda w: write_json(w / "specs/figures/lg_fig4.json", (
         content := json.loads((w / "specs/figures/lg_fig4.json").read_text())) | {"series": content["series"] * 2}),
     JUDGE, "an arm of a panel is given twice with the same seed"),
    ("drawing without tables", nothing, JUDGE.replace("judge", "plot"), r"empty/.*\.parquet"),
    ("a report on nothing", nothing, "report {w}/empty --out {w}/r.html", "empty"),
    ("verdicts of nothing", nothing, "verdicts {w}/empty", "empty"),
]  # fmt: skip


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("change", "command", "message"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_bad_input_gives_one_clear_line(
    change: Change, command: str, message: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "w"
    shutil.copytree(world, folder)
    change(folder)
    before = contents(folder)
    capsys.readouterr()
    code = main(shlex.split(command.format(w=folder)))
    error = capsys.readouterr().err
    assert code != 0
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error
    assert contents(folder) == before
