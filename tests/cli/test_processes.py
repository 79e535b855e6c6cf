"""`--processes` and torchrun, with real processes, signals and exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from polars.testing import assert_frame_equal
from small import run_spec

from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.files import write_json
from ssm.base.tables import read_table
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.models.weights_file import load_tensors
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.training import RunSpec
from ssm.training.loop import train

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "--", "ssm"]
CPU = torch.device("cpu")
POLL = 0.02


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ssm", *map(str, arguments), "--device", "cpu", "--threads", "1"]
    return subprocess.Popen([*command, "--processes", "2"], stderr=subprocess.PIPE, text=True)


def training(run: RunSpec, store: TokenStore, folder: Path) -> list[object]:
    write_json(folder / "spec.json", run.content())
    arguments = ["train", folder / "spec.json", "--tokens", store.folder, "--out", folder / "run"]
    return [*arguments, "--checkpoint-steps", 20]


def when_saved(job: subprocess.Popen[str], folder: Path, step: int, action: Callable[[], object]) -> tuple[int, str]:
    """Act as soon as there is a checkpoint after `step`. Returns the exit code and stderr of the job."""
    path = folder / "run" / "checkpoint.safetensors"
    while not (path.exists() and load_tensors(path)[1]["step"] > step):
        with pytest.raises(subprocess.TimeoutExpired):  # fails if the job ends too early
            job.wait(POLL)
    action()
    _, stderr = job.communicate()
    return job.returncode, stderr


def message(stderr: str) -> str:
    """The only line that is not a line of progress."""
    [line] = [line for line in stderr.splitlines() if "[" not in line]
    return line


def workers(job: subprocess.Popen[str]) -> list[psutil.Process]:
    return [process for process in psutil.Process(job.pid).children() if "train" in process.cmdline()]


@pytest.mark.exhaustive
def test_a_killed_process_or_a_signal_stops_all_processes(store: TokenStore, tmp_path: Path) -> None:
    """Each time there is one line, and a checkpoint from which the same command continues."""
    run = run_spec(store.spec, initial_state={"policy": "state_passing"}, budget={"steps": 4000})
    job = started(*training(run, store, tmp_path))
    code, stderr = when_saved(job, tmp_path, 0, lambda: workers(job)[1].kill())
    assert code == LOST
    assert message(stderr).startswith("ssm train: process 1 of 2 (")
    assert message(stderr).endswith("run the same command to continue from the last checkpoint")
    step = load_tensors(tmp_path / "run" / "checkpoint.safetensors")[1]["step"]

    job = started(*training(run, store, tmp_path))
    group: list[psutil.Process] = []
    code, stderr = when_saved(job, tmp_path, step, lambda: (group.extend(workers(job)), job.terminate()))
    assert code == REQUEUE
    assert message(stderr).startswith(f"ssm train: {run.id}: stopped by SIGTERM at step ")
    assert not any(process.is_running() for process in group)
    assert load_tensors(tmp_path / "run" / "checkpoint.safetensors")[1]["step"] > step


@pytest.mark.exhaustive
def test_torchrun_makes_the_same_table_as_one_process(store: TokenStore, tmp_path: Path) -> None:
    run = run_spec(store.spec, budget={"steps": 5})
    train(run, store, tmp_path / "run", CPU)
    task = MeasurementTask(measurement=PositionLoss(length=64, sequences=4), run=run)
    write_json(tmp_path / "task.json", task.content())
    measure(task, tmp_path / "one.parquet", CPU, tmp_path / "run", store.folder)
    inputs = [tmp_path / "task.json", "--run", tmp_path / "run", "--tokens", store.folder, "--device", "cpu"]
    arguments = ["evaluate", *inputs, "--out", tmp_path / "two.parquet"]
    subprocess.run([*TORCHRUN, *map(str, arguments)], check=True, capture_output=True)
    one, two = (read_table(tmp_path / f"{name}.parquet", PositionLoss.table) for name in ("one", "two"))
    assert_frame_equal(two, one, rel_tol=1e-6, abs_tol=1e-7)
