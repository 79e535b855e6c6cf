"""Snakemake in a forked process. A server imports it once for all tests: this takes most of a small run's time."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from forked_processes import PROCESSES

SECONDS = 300.0


def run_snakemake(arguments: list[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `snakemake` in this folder and environment, at most SECONDS."""
    with tempfile.TemporaryDirectory() as outputs:
        paths = [Path(outputs, name) for name in ("stdout", "stderr")]
        job = PROCESSES.Process(target=_run, args=(arguments, folder, dict(variables), paths))
        job.start()
        job.join(SECONDS)
        if job.exitcode is None:
            assert job.pid is not None
            os.killpg(job.pid, signal.SIGKILL)  # also the jobs of the workflow
            job.join()
            raise subprocess.TimeoutExpired(arguments, SECONDS)
        return subprocess.CompletedProcess(arguments, job.exitcode, *(path.read_text() for path in paths))


def _run(arguments: list[str], folder: Path, variables: dict[str, str], outputs: list[Path]) -> None:
    os.setsid()
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path.insert(0, str(folder))  # as `python -m` does
    if (folder / "ssm").exists():  # the folder's own copy is imported
        for name in [name for name in sys.modules if name.partition(".")[0] == "ssm"]:
            del sys.modules[name]
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends its processes without them
