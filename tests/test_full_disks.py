"""Full disks, vanished files, two jobs at once: one line, an exit code, and no half-written file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from campaign.tools import job
from file_limit import file_limit
from forked_processes import PROCESSES
from small import make_store, run_spec

from ssm.base.files import write_json
from ssm.cli.main import main
from ssm.data import store as stores
from ssm.models.weights_file import load_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.state_statistics import StateStatistics
from ssm.training.loop import train


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Specs, tokens and a trained run."""
    import torch

    folder = tmp_path_factory.mktemp("world")
    store = make_store(folder, documents=12)
    run = run_spec(store.spec, budget={"steps": 40})
    write_json(folder / "run.json", run.content())
    write_json(folder / "data.json", store.spec.content())
    task = MeasurementTask(measurement=StateStatistics(length=64, sequences=64), run=run)
    write_json(folder / "task.json", task.content())
    train(run, store, folder / "run", torch.device("cpu"))
    return folder


def arguments(verb: str, w: Path, out: Path) -> list[str]:
    """A correct call of `ssm` with its output below `out`."""
    tokens, cpu = ["--tokens", f"{w}/tokens"], ["--device", "cpu", "--threads", "1"]
    return {
        "tokenize": ["tokenize", f"{w}/data.json", "--out", f"{out}/tokens", "--workers", "1"],
        "train": ["train", f"{w}/run.json", *tokens, "--out", f"{out}/run", *cpu, "--checkpoint-steps", "10"],
        "evaluate": ["evaluate", f"{w}/task.json", *tokens, "--run", f"{w}/run", "--out", f"{out}/t.parquet", *cpu],
    }[verb]


def ended(command: list[str], folder: Path) -> tuple[int, list[str]]:
    """The exit code of `ssm` in a new process, and its error lines."""
    folder.mkdir(exist_ok=True)
    process = PROCESSES.Process(target=job, args=(command, folder / "log"))
    process.start()
    process.join()
    assert process.exitcode is not None
    said = (folder / "log").read_text()
    assert "Traceback" not in said
    return process.exitcode, [line for line in said.splitlines() if line.startswith(f"ssm {command[0]}: ")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk; the test is skipped if none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("verb", ["tokenize", "train", "evaluate"])
def test_a_file_that_cannot_grow_is_one_line(
    verb: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file_limit(300):
        assert main(arguments(verb, world, tmp_path / "out")) == 2
    (said,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith(f"ssm {verb}: "))
    assert said.startswith(f"ssm {verb}: {tmp_path}/out/")
    assert "File too large" in said
    files = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files <= {".lock", "progress.json"}  # files of a run that are smaller than the limit


@pytest.mark.parametrize(
    ("verb", "work"), [("evaluate", "ssm.evaluation.measure.measure"), ("bench", "ssm.cli.bench._training")]
)
def test_a_table_that_cannot_be_written_is_refused_before_any_work(
    verb: str,
    work: str,
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, _, name = work.rpartition(".")
    monkeypatch.setattr(import_module(module), name, lambda *_: pytest.fail("the work began"))
    (tmp_path / "file").touch()
    out = tmp_path / "file"
    command = ["bench", "training", "--out", f"{out}/t.parquet"] if verb == "bench" else arguments(verb, world, out)
    assert main(command) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"ssm {verb}: {out}/t.parquet: cannot be written")


def test_training_on_a_full_disk_can_continue_from_its_last_checkpoint(world: Path, tmp_path: Path, disk: Path) -> None:
    """Its weights are bitwise those of a run that always had room."""
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    code, _ = ended([*arguments("train", world, disk), "--threads", "1"], tmp_path / "log")
    assert code == 0
    needed = sum(path.stat().st_size for path in (disk / "run").rglob("*") if path.is_file())
    shutil.rmtree(disk / "run")
    subprocess.run(["mount", "-o", f"remount,size={2 * needed}", str(disk)], check=True)
    code, said = ended(arguments("train", world, disk), tmp_path / "log2")
    assert (code, len(said)) == (2, 1), said
    assert "No space left on device" in said[0]
    step = load_tensors(disk / "run/checkpoint.safetensors")[1]["step"]
    assert step % 10 == 0 < step
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    assert ended(arguments("train", world, disk), tmp_path / "log3")[0] == 0
    ours, whole = (load_tensors(folder / "run/model.safetensors")[0] for folder in (disk, world))
    assert all(ours[name].numpy().tobytes() == whole[name].numpy().tobytes() for name in whole)


def test_tokens_that_vanish_during_a_measurement_are_one_line(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a local disk, an open file stays readable after it is deleted, but not after it is truncated."""
    shutil.copytree(world / "tokens", tmp_path / "tokens")
    checked = stores._check_files

    def gone(folder: Path, *more: object) -> None:
        checked(folder, *more)  # type: ignore[arg-type]
        (folder / "held_out-00000.tokens").unlink()

    monkeypatch.setattr(stores, "_check_files", gone)
    command = arguments("evaluate", world, tmp_path)
    command[command.index("--tokens") + 1] = str(tmp_path / "tokens")
    assert main(command) == 2
    assert "held_out-00000.tokens" in capsys.readouterr().err
    assert not (tmp_path / "t.parquet").exists()


def test_two_jobs_of_one_run_take_turns(world: Path, tmp_path: Path) -> None:
    """The second job waits, prints a line about it, and then finds a finished run."""
    pair = []
    for name in ("one", "two"):
        command = arguments("train", world, tmp_path)
        pair.append(PROCESSES.Process(target=job, args=(command, tmp_path / name)))
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0, 0]
    said = (tmp_path / "one").read_text() + (tmp_path / "two").read_text()
    assert said.count("another process works in this folder; waiting for it") <= 1
    assert said.count("finished, 40 steps") == 2
    ours, whole = (load_tensors(folder / "run/model.safetensors")[0] for folder in (tmp_path, world))
    assert all(ours[name].numpy().tobytes() == whole[name].numpy().tobytes() for name in whole)
