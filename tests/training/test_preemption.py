"""Signals, full and read-only disks, and vanishing files: the last checkpoint stays usable."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked_processes import PROCESSES
from safetensors import SafetensorError
from small import run_spec

import ssm.cli.plan
import ssm.models.weights_file as weights_on_disk
from ssm.base.errors import DataError, OutputError, UserError
from ssm.base.exit_codes import REQUEUE, TIME_OVER
from ssm.base.stopping import SIGNALS, Preempted
from ssm.cli.main import main
from ssm.data.store import TokenStore
from ssm.models.weights_file import load_tensors
from ssm.specs.training import RunSpec
from ssm.training import checkpoint_schedule, loop
from ssm.training import step as training_step
from ssm.training.checkpoint_schedule import Checkpointer, CheckpointSchedule
from ssm.training.metrics import Metrics
from ssm.training.step import Stepper

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(store: TokenStore) -> RunSpec:
    return run_spec(store.spec, initial_state={"policy": "state_passing", "p_zero": 0.2}, budget={"steps": 40})


@pytest.fixture(scope="module")
def whole(run: RunSpec, store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(run, store, folder)
    return folder


def train(run: RunSpec, store: TokenStore, folder: Path, checkpoints: CheckpointSchedule | None = None) -> None:
    loop.train(run, store, folder, CPU, checkpoints=checkpoints or CheckpointSchedule(steps=20))


def at_step(patch: pytest.MonkeyPatch, number: int, action: Callable[[], object]) -> None:
    """Call `action` after step `number` of the following runs."""
    make = Stepper.train_step

    def eventful(stepper: Stepper, step: int, *rest: Any) -> Any:
        row = make(stepper, step, *rest)
        if step == number:
            action()
        return row

    patch.setattr(Stepper, "train_step", eventful)


def saved_step(folder: Path) -> int:
    return load_tensors(folder / "checkpoint.safetensors")[1]["step"]


def continues_bitwise(run: RunSpec, store: TokenStore, folder: Path, whole: Path) -> None:
    """Train again in `folder`, and compare the result bitwise with the uninterrupted run."""
    train(run, store, folder)
    for name in ("model.safetensors", "checkpoint.safetensors"):
        mine, other = (load_tensors(place / name)[0] for place in (folder, whole))
        assert mine.keys() == other.keys()
        assert all(mine[key].numpy().tobytes() == other[key].numpy().tobytes() for key in mine)
    assert not list(folder.rglob(".*.tmp"))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_after_a_signal_the_checkpoint_has_the_current_step(
    number: signal.Signals,
    run: RunSpec,
    store: TokenStore,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with monkeypatch.context() as patch:
        at_step(patch, 13, lambda: os.kill(os.getpid(), number))
        with pytest.raises(Preempted, match=f"stopped by {number.name} at step 20 of 40; its checkpoint is written"):
            train(run, store, tmp_path / "run", CheckpointSchedule(seconds=1e9))
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert saved_step(tmp_path / "run") == 20  # signals are checked every 10 steps
    assert not (tmp_path / "run" / "run.json").exists()
    continues_bitwise(run, store, tmp_path / "run", whole)


def test_slow_steps_are_checked_one_by_one(
    run: RunSpec, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_schedule, "SLOW", 0.0)
    at_step(monkeypatch, 13, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Preempted):
        train(run, store, tmp_path, CheckpointSchedule(seconds=1e9))
    assert saved_step(tmp_path) == 13


@pytest.mark.parametrize(
    ("policy", "step"),
    [
        ("state_passing", 1),
        ("fitted_noise", 13),
        *(
            pytest.param(policy, step, marks=pytest.mark.exhaustive)
            for policy, step in (("state_passing", 13), ("fitted_noise", 1), ("random_noise", 1), ("random_noise", 13))
        ),
    ],
)
def test_a_long_step_stops_between_its_micro_batches(
    policy: str, step: int, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished micro-batches are dropped: the checkpoint is that of the step before."""
    sigma = {"sigma": 0.3} if policy == "random_noise" else {}
    recipe = {"budget": {"steps": 16}, "batch_tokens": 128, "micro_batch_tokens": 32}
    run = run_spec(store.spec, initial_state={"policy": policy} | sigma, **recipe)
    parts, loss_of = [0], training_step.loss_of

    def eventful(*arguments: Any) -> Any:
        parts[0] += 1
        if parts[0] == 4 * (step - 1) + 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss_of(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_schedule, "SLOW", 0.0)
        patch.setattr(training_step, "loss_of", eventful)
        with pytest.raises(Preempted, match=f"stopped by SIGTERM at step {step - 1} of 16; its checkpoint is written"):
            train(run, store, tmp_path / "run", CheckpointSchedule(seconds=1e9))
    assert parts[0] == 4 * (step - 1) + 2
    assert saved_step(tmp_path / "run") == step - 1
    train(run, store, tmp_path / "whole")
    continues_bitwise(run, store, tmp_path / "run", tmp_path / "whole")


def test_a_signal_in_the_last_steps_lets_the_run_finish(
    run: RunSpec, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_step(monkeypatch, 38, lambda: os.kill(os.getpid(), signal.SIGTERM))
    train(run, store, tmp_path)
    assert (tmp_path / "run.json").exists()


def test_a_run_stops_before_its_time_limit_and_every_job_makes_progress(
    run: RunSpec, store: TokenStore, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit has already passed: each job trains up to its first check."""
    monkeypatch.setattr(checkpoint_schedule, "SLOW", 1e9)  # check at the first step of a job, and at every tenth
    over = CheckpointSchedule(seconds=1e9, until=time.monotonic())
    for step in (1, 2, 3):
        with pytest.raises(Preempted, match=f"by its time limit at step {step} of 40; its checkpoint is") as stop:
            train(run, store, tmp_path / "run", over)
        assert stop.value.code == TIME_OVER
        assert saved_step(tmp_path / "run") == step
    continues_bitwise(run, store, tmp_path / "run", whole)


@pytest.mark.parametrize(("write", "until"), [(0.0, 250.0), (60.0, 400.0)])
def test_a_step_that_would_exceed_the_time_limit_does_not_start(
    write: float, until: float, run: RunSpec, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes 100 seconds of a simulated clock, and the last checkpoint has to fit, too."""
    now = [0.0]
    monkeypatch.setattr(checkpoint_schedule, "time", SimpleNamespace(monotonic=lambda: now[0]))
    make, save = Stepper.train_step, Checkpointer.save

    def slow_step(*arguments: Any) -> Any:
        now[0] += 100
        return make(*arguments)

    def slow_save(checkpointer: Checkpointer, step: int) -> None:
        now[0] += write
        save(checkpointer, step)

    monkeypatch.setattr(Stepper, "train_step", slow_step)
    monkeypatch.setattr(Checkpointer, "save", slow_save)
    with pytest.raises(Preempted, match="by its time limit at step 2 of 40"):
        train(run, store, tmp_path, CheckpointSchedule(seconds=100.0 if write else 1e9, until=until))
    assert now[0] <= until


def test_slow_checkpoints_are_written_less_often(
    run: RunSpec, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes 8 simulated seconds, and is checked. 2% of 64 seconds are 1.28 seconds.

    The training time is that of the steps: 7 seconds, and 1 until a GPU has ended them and the losses are fetched.
    """
    now, saved, takes, taken = [0.0], [], [0.0], set()
    monkeypatch.setattr(checkpoint_schedule, "time", SimpleNamespace(monotonic=lambda: now[0]))
    make, flush, save, save_due = Stepper.train_step, Metrics.flush, Checkpointer.save, Checkpointer.save_due

    def slow_step(*arguments: Any) -> Any:
        now[0] += 7.0
        return make(*arguments)

    def slow_flush(metrics: Metrics) -> str | None:
        now[0] += 1.0
        return flush(metrics)

    def slow_save(checkpointer: Checkpointer, step: int) -> None:
        now[0] += takes[0]
        saved.append(step)
        save(checkpointer, step)

    def noted(checkpointer: Checkpointer, *arguments: Any) -> None:
        save_due(checkpointer, *arguments)
        taken.add(checkpointer.taken)

    monkeypatch.setattr(Stepper, "train_step", slow_step)
    monkeypatch.setattr(Metrics, "flush", slow_flush)
    monkeypatch.setattr(Checkpointer, "save", slow_save)
    monkeypatch.setattr(Checkpointer, "save_due", noted)
    for seconds, expected in ((1.25, [8, 16, 24, 32, 40]), (2.5, [8, 24, 40])):
        saved.clear()
        takes[0] = seconds
        train(run, store, tmp_path / str(seconds), CheckpointSchedule(seconds=64.0))
        assert saved == expected
        record = json.loads((tmp_path / str(seconds) / "run.json").read_text())
        assert (taken, record["seconds"]) == ({8.0}, 320.0)


def test_a_signal_ends_any_command_with_the_code_for_another_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ssm.cli.plan, "run", lambda args: os.kill(os.getpid(), signal.SIGUSR1))
    assert main(["plan"]) == REQUEUE
    assert capsys.readouterr().err == "ssm plan: stopped by SIGUSR1; the same command starts it again\n"


def test_on_a_full_disk_the_last_checkpoint_stays(
    run: RunSpec, store: TokenStore, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors reports the error after writing a part of the file."""
    save = weights_on_disk.save_file

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        save(tensors, path, metadata)
        if "checkpoint" not in path.name:
            return
        os.truncate(path, 1000)
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        at_step(patch, 25, lambda: patch.setattr(weights_on_disk, "save_file", full))
        with pytest.raises(OutputError, match=r"checkpoint.safetensors: cannot be written \(.*No space left") as caught:
            train(run, store, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert saved_step(tmp_path / "run") == 20
    continues_bitwise(run, store, tmp_path / "run", whole)


def limited(run: RunSpec, tokens: Path, folder: Path, limit: int, says: Path) -> None:
    """Train with a limit on the size of files, in bytes."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(run, TokenStore.open(tokens), folder, CheckpointSchedule(steps=5))
    except UserError as error:
        says.write_text(str(error))


@pytest.mark.parametrize(("limit", "name"), [(1000, "checkpoint.metrics.parquet"), (9000, "checkpoint.safetensors")])
def test_a_file_that_exceeds_a_limit_is_one_line(
    limit: int, name: str, run: RunSpec, store: TokenStore, tmp_path: Path
) -> None:
    """The kernel refuses the write, in the table's writer and in the tensors' writer."""
    process = PROCESSES.Process(target=limited, args=(run, store.folder, tmp_path / "run", limit, tmp_path / "says"))
    process.start()
    process.join()
    assert process.exitcode == 0
    says = (tmp_path / "says").read_text()
    assert says.startswith(f"{tmp_path}/run/{name}: cannot be written (")
    assert "File too large" in says
    assert "\n" not in says
    assert not (tmp_path / "run" / name).exists()
    assert not list((tmp_path / "run").rglob(".*.tmp"))


def test_a_folder_that_cannot_be_written_is_one_line(
    run: RunSpec, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Path.open

    def read_only(path: Path, mode: str = "r", *more: Any) -> Any:
        if {*mode} & {*"wax+"}:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return loaded(path, mode, *more)

    monkeypatch.setattr(Path, "open", read_only)
    with pytest.raises(OutputError, match=r"run: cannot be written \(Read-only file system\)"):
        train(run, store, tmp_path / "run")


def test_when_a_shard_vanishes_the_last_checkpoint_stays(
    run: RunSpec, store: TokenStore, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    shutil.copytree(store.folder, tokens)
    shard = tokens / "train-00000.tokens"
    with monkeypatch.context() as patch:
        at_step(patch, 25, lambda: os.truncate(shard, 0))
        with pytest.raises(DataError, match=r"train-00000.tokens: has become shorter since it was opened"):
            train(run, TokenStore.open(tokens), tmp_path / "run")
    assert saved_step(tmp_path / "run") == 20
    continues_bitwise(run, store, tmp_path / "run", whole)
