"""Tools of the campaign that wait, find processes and compare results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ssm.base.tables import read_table
from ssm.cli.main import main as ssm
from ssm.models.weights_file import load_tensors

POLL = 0.0005  # seconds between two checks of a folder
PATIENCE = 120.0  # seconds: longer than anything here takes


def job(arguments: list[str], log: Path) -> None:
    """Run `ssm` with these arguments; its output goes to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(ssm(arguments))


def jobs(snakemake: psutil.Process, verb: str) -> list[psutil.Process]:
    """The `ssm` processes below a snakemake that run the command `verb`; any command if it is empty."""
    found = []
    for process in snakemake.children(recursive=True) if snakemake.is_running() else []:
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if len(command) > 2 and command[1].endswith("bin/ssm") and command[2].startswith(verb):
            found.append(process)
    return found


def wait_for_checkpoints(out: Path, count: int, alive: Callable[[], bool]) -> None:
    """Wait until `count` checkpoints have been written, or the process has ended."""
    for _ in range(count):
        before = written(out)
        until(lambda: written(out) != before or not alive())  # noqa: B023 (called immediately)


def written(out: Path) -> int:
    """The time when the checkpoint was written; 0 if there is none."""
    try:
        return (out / "checkpoint.safetensors").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def writes_checkpoint(out: Path) -> bool:
    """Whether a checkpoint is being written, or was being written when its process was killed."""
    return any(out.glob(".checkpoint.*.tmp"))


def until(ready: Callable[[], bool], poll: float = POLL) -> None:
    """Wait until `ready`, or fail after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not ready() and time.monotonic() < deadline:
        time.sleep(poll)


def until_time(seconds: float, alive: Callable[[], bool]) -> None:
    """Wait for some seconds, unless the process ends."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end or not alive())


def differences(whole: Path, killed: Path) -> list[str]:
    """The differences between two results: weights bitwise, tables row by row."""
    names = {kind: sorted(str(path.relative_to(whole)) for path in whole.rglob(f"*.{kind}"))
             for kind in ("safetensors", "parquet", "tmp")}  # fmt: skip
    found = [f"{path}: left over" for path in killed.rglob(".*.tmp")]
    for name in names["safetensors"] + names["parquet"]:
        if not (killed / name).exists():
            found.append(f"{name}: missing")
        elif name.endswith(".parquet"):
            found += [f"{name}: other rows"] * (not read_table(whole / name).equals(read_table(killed / name)))
        else:
            ours, theirs = (load_tensors(folder / name)[0] for folder in (whole, killed))
            same = ours.keys() == theirs.keys() and all(
                ours[key].numpy().tobytes() == theirs[key].numpy().tobytes() for key in ours
            )
            found += [f"{name}: other weights"] * (not same)
    return found if names["safetensors"] else [f"{whole}: the undisturbed run made nothing"]
