"""Good inputs of every kind, each with the command that reads it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from plan.mini import write_config
from report.folder import results_folder
from small import make_store, model_spec, run_spec, write_checkpoint

from ssm.base.files import write_json
from ssm.base.tables import VERDICTS, read_table
from ssm.cli.main import main
from ssm.data.store import TokenStore
from ssm.models.backbone import build_model
from ssm.models.weights_file import load_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.training.loop import train

CONFIG = Path(__file__).parents[2] / "config"
LIMIT = 10.0  # seconds of processor time after which a call counts as a hang
WAITING = 12  # the limit of real time is this many times longer, because other processes may be running


class Hang(BaseException):
    """A call has taken too long. Derives from BaseException, so that only the fuzzer catches it."""


@dataclass(frozen=True)
class Target:
    """A good input, and the command that reads it."""

    kind: str
    file: Path
    words: Callable[[Path], list[str]]  # the command for an output folder
    result: Callable[[Path], object] | None = None  # reads the result from the output folder; None: not compared
    exact: bool = False  # a successful call must give the result of the good input


@dataclass
class World:
    """Good inputs of every kind below one folder."""

    folder: Path
    targets: list[Target] = field(default_factory=list)
    expected: dict[Path, object] = field(default_factory=dict)

    def add(self, kind: str, file: Path, *more: Any, **options: Any) -> None:
        self.targets.append(Target(kind, file, *more, **options))


def build(folder: Path) -> World:
    """Make the inputs, and check that each command accepts them."""
    world = World(folder)
    config = _add_configs(world)
    store = _add_runs(world)
    _add_results(world)
    _add_registrations(world, config)
    _add_corpus(world, store)
    _add_checkpoints(world)
    _add_extension(world)
    _run_all(world)
    for target in {target.words: target for target in world.targets}.values():
        world.add("arguments", target.file, target.words)
    return world


def _add_configs(world: World) -> Path:
    """Config files for `ssm plan`. Returns the folder of the small configuration."""
    folder, add = world.folder, world.add
    config = write_config(folder / "config")

    def planned(out: Path) -> list[str]:
        return ["plan", "--config", str(config), "--write", str(out / "specs")]

    for path in sorted(config.rglob("*.yaml")):
        add("figure file" if path.parent != config else "config file", path, planned)

    whole = Path(shutil.copytree(CONFIG, folder / "whole_config"))
    repairs = ["plan", "--config", str(whole), "--figures", "x_repairs"]
    add("figure file", whole / "figures" / "x_repairs.yaml", lambda out: [*repairs, "--write", str(out / "specs")])
    return config


def _add_runs(world: World) -> TokenStore:
    """A run, one that was stopped, its specs and its tables. Returns the token store."""
    folder, add = world.folder, world.add
    store = make_store(folder, documents=12)
    base = run_spec(store.spec, budget={"steps": 4}, snapshots=[0.5])
    write_json(folder / "base.json", base.content())
    run = folder / "runs" / "base"
    train(base, store, run, torch.device("cpu"))
    short = folder / "short"
    shutil.copytree(run, short)
    (short / "run.json").unlink()
    curve = PositionLoss(length=64, sequences=4)
    write_json(folder / "task.json", MeasurementTask(measurement=curve, run=base).content())
    classes = LengthClass(of=curve, context=16)
    write_json(folder / "class.json", MeasurementTask(measurement=classes, run=base).content())
    write_json(folder / "data.json", store.spec.content())
    tokens = ["--tokens", str(store.folder), "--device", "cpu", "--threads", "1"]

    def tokenize(out: Path) -> list[str]:
        return ["tokenize", f"{folder}/data.json", "--out", f"{out}/tokens"]

    def training(out: Path) -> list[str]:
        return ["train", f"{folder}/base.json", "--out", f"{out}/run", *tokens]

    def resuming(out: Path) -> list[str]:
        shutil.copytree(short, out / "run")
        return training(out)

    def measuring(out: Path) -> list[str]:
        return ["evaluate", f"{folder}/task.json", "--run", str(run), "--out", f"{out}/t.parquet", *tokens]

    def classing(out: Path) -> list[str]:
        table = ["--table", f"{folder}/curve.parquet", "--out", f"{out}/t.parquet", "--run", str(run)]
        return ["evaluate", f"{folder}/class.json", *table, *tokens]

    def table(out: Path) -> object:
        return read_table(out / "t.parquet").rows()

    def weights(out: Path) -> object:
        tensors, _ = load_tensors(out / "run" / "model.safetensors")
        return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}

    assert main(measuring(folder)) == 0
    (folder / "t.parquet").rename(folder / "curve.parquet")
    for name, command in (("base", training), ("task", measuring), ("class", classing), ("data", tokenize)):
        add("spec", folder / f"{name}.json", command)
    add("manifest", store.folder / "manifest.json", measuring, table)
    add("run.json", run / "run.json", measuring, table)
    add("weights", run / "model.safetensors", measuring, table, exact=True)
    add("checkpoint", short / "checkpoint.safetensors", resuming, weights, exact=True)
    add("checkpoint", short / "checkpoint.metrics.parquet", resuming, weights, exact=True)
    add("table", folder / "curve.parquet", classing, table, exact=True)
    add("tokens", store.folder / "train-00000.tokens", measuring, table, exact=True)
    return store


def _add_results(world: World) -> None:
    """A folder of results, for verdicts and reports."""
    add, results = world.add, world.folder / "results" / "smoke"
    task = results_folder(results)
    spec = results / "specs" / "figures" / "lg_fig5.json"

    def judging(out: Path) -> list[str]:
        return ["judge", str(spec), "--tables", f"{results}/tables", "--out", f"{out}/v.parquet"]

    def reporting(out: Path) -> list[str]:
        return ["report", str(results), "--out", f"{out}/pages"]

    def watching(out: Path) -> list[str]:
        return ["watch", str(results)]

    def verdicts(out: Path) -> object:
        return read_table(out / "v.parquet", VERDICTS).rows()

    first = results / "tables" / f"{task.series[0].tables['position_loss']}.parquet"
    record = sorted((results / "runs").glob("*/run.json"))[0]
    live = results / "runs" / "live"
    write_json(live / "progress.json", {
        "done": 3, "total": 10, "unit": "steps", "rate": 38.0, "rate_unit": "tokens", "unit_seconds": 0.5,
        "seconds_left": 35.0, "note": "loss 2.718", "state": "running",
    })  # fmt: skip
    add("spec", spec, judging)
    add("table", first, judging, verdicts, exact=True)
    add("table", results / "verdicts" / "lg_fig5.parquet", lambda out: ["verdicts", str(results)])
    add("run.json", record, watching)
    add("run.json", record, reporting)
    add("manifest", sorted((results / "tokens").glob("*/manifest.json"))[0], reporting)
    add("progress.json", live / "progress.json", watching)


def _add_registrations(world: World, config: Path) -> None:
    register = ["register", "--config", str(config), "--scale", "smoke"]
    assert call(register, LIMIT * 6)[0] == 0
    world.add("registered.json", config / "registered.json", lambda out: [*register, "--check"])


def _add_corpus(world: World, store: TokenStore) -> None:
    folder = world.folder
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "a row of words, number {number}"}}\n' for number in range(40)))
    corpus = {"kind": "files", "paths": [str(rows)], "format": "jsonl"}
    write_json(folder / "rows.json", store.spec.content() | {"corpus": corpus})
    world.add("corpus", rows, lambda out: ["tokenize", f"{folder}/rows.json", "--out", f"{out}/tokens"])


def _add_checkpoints(world: World) -> None:
    """Checkpoints of other libraries."""
    folder = world.folder
    theirs = folder / "theirs"
    write_checkpoint(build_model(model_spec(), 256, seed=1), "mamba2", theirs / "mamba2")
    write_checkpoint(build_model(model_spec(), 256, seed=1), "mamba_ssm", theirs / "mamba_ssm")
    tokenizer(theirs / "mamba2" / "tokenizer.json")
    (folder / "void.txt").write_text("")  # `ssm diagnose` opens the model, and then finds no text

    def opening(name: str, *more: str) -> Callable[[Path], list[str]]:
        given = ["--text", f"{folder}/void.txt", "--context", "16", "--device", "cpu", "--threads", "1", *more]
        return lambda out: ["diagnose", str(theirs / name), "-o", f"{out}/page", *given]

    for name in ("mamba2", "mamba_ssm"):
        diagnosing = opening(name)
        for path in sorted((theirs / name).iterdir()):
            if path.suffix in (".json", ".safetensors", ".bin"):
                world.add(f"their {path.name}", path, diagnosing)


def _add_extension(world: World) -> None:
    """A finished extension of one of these checkpoints."""
    folder = world.folder
    ended = folder / "ended"
    given = ["--text", f"{folder}/texts", "--context", "16", "--length", "128", "--sequences", "4", "--steps", "1"]

    def extending(out: Path) -> list[str]:
        if ended.exists():
            shutil.copytree(ended, out / "extension")
        where = ["-o", f"{out}/extension", "--device", "cpu", "--threads", "1"]
        return ["extend", f"{folder}/theirs/mamba_ssm", *given, *where]

    assert call(extending(folder / "first"), LIMIT * 6)[0] == 0
    (folder / "first" / "extension").rename(ended)
    for name in ("extension.json", "result.json"):
        world.add(name, ended / name, extending)


def _run_all(world: World) -> None:
    """Run each command, and keep the expected results."""
    for words, result in {(target.words, target.result) for target in world.targets}:
        files = [target.file for target in world.targets if (target.words, target.result) == (words, result)]
        with tempfile.TemporaryDirectory() as name:
            command = words(Path(name))
            code, said = call(command, LIMIT * 6)
            assert code == 0 or command[0] == "diagnose", (files, said)  # its text is empty
            if result is not None:
                world.expected |= dict.fromkeys(files, result(Path(name)))


def tokenizer(path: Path) -> None:
    """Write a tokenizer.json with the vocabulary size of the models here."""
    import tokenizers

    words = {f"w{number}": number for number in range(255)} | {"?": 255}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?")).save(str(path))


def call(words: list[str], limit: float) -> tuple[int, str]:
    """The exit code and stderr of a command."""

    def late(*_: object) -> None:
        raise Hang

    said = io.StringIO()
    timers = {signal.SIGPROF: (signal.ITIMER_PROF, limit), signal.SIGALRM: (signal.ITIMER_REAL, WAITING * limit)}
    before = {number: signal.signal(number, late) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
    return code, said.getvalue()
