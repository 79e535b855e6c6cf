"""The fork server of a workflow's jobs: `ssm.base.fork_client.start` starts it and says what it is for; not for use by
hand.

It forks, so it must have one thread: others would be missing in a worker, together with whatever they hold. polars
starts one when it is imported. So each worker imports polars, and the modules of ssm that need it, itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from ssm.base.fork_client import TAKEN, identity, same_user
from ssm.base.launch import die_with_parent
from ssm.cli.main import main

FORK = multiprocessing.get_context("fork")
PATIENCE = 10.0  # seconds until who asks has sent its request
SPECS = ("pyarrow.parquet", "ssm.base.provenance", "ssm.figures.figure", "ssm.specs.measurement")
TRAINING = tuple(f"ssm.training.{name}" for name in ("checkpoint", "distributed", "lineage", "step"))
TORCH = (*SPECS, "scipy.stats", "torch._dynamo", "ssm.models.device", "ssm.models.inspect", *TRAINING)
STATISTICS = (*SPECS, "scipy.stats", "ssm.claims.words")
# What jobs import, by verb, but for polars: imported when the first of them comes. Others work by themselves.
MODULES = {
    "train": TORCH,
    "evaluate": TORCH,
    "judge": STATISTICS,
    "plot": (
        *STATISTICS,
        *(f"matplotlib.backends.backend_{kind}" for kind in ("agg", "pdf", "svg")),
        "ssm.figures.style",
    ),
    "report": (*STATISTICS, "jinja2", "ssm.report.image", "ssm.report.strip"),
}


def serve(listener: socket.socket, lifeline: int) -> None:
    """Fork a worker for each request, pass signals on to it, and answer with its exit code; until the lifeline ends."""
    ours, since = identity(os.environ), time.time()
    jobs: dict[socket.socket, ForkProcess] = {}  # who asks -> the worker
    while lifeline not in (ready := wait([listener, lifeline, *jobs, *(job.sentinel for job in jobs.values())])):
        for client, job in list(jobs.items()):
            if job.sentinel in ready:
                job.join()
                with suppress(OSError):  # who asks is gone
                    client.sendall((job.exitcode or 0).to_bytes(4, "big", signed=True))
            elif client not in ready or _tell(job, client):
                continue
            client.close()
            del jobs[client]
        if listener in ready:
            client, _ = listener.accept()
            new = _fork(client, ours, since, [listener, *jobs]) if same_user(client) else None
            if new is None:
                client.close()
            else:
                jobs[client] = new


def _tell(job: ForkProcess, client: socket.socket) -> bool:
    """Pass on what signals who asks has got; if it is gone, end the job. Returns whether that goes on."""
    try:
        numbers = client.recv(64)
    except OSError:
        numbers = b""
    if not numbers:
        job.kill()
        job.join()
    for number in numbers:
        os.kill(job.pid or 0, number)
    return bool(numbers)


def _fork(
    client: socket.socket, ours: dict[str, Any], since: float, others: Iterable[socket.socket]
) -> ForkProcess | None:
    """Fork a worker for what a client asks; None if that is no job for us."""
    client.settimeout(PATIENCE)
    streams: list[int] = []
    try:
        _, streams, _, _ = socket.recv_fds(client, 1, 2)
        with client.makefile("rb") as lines:
            asked = json.loads(lines.readline())
        modules = MODULES.get(asked["arguments"][0])
        if modules is None or any(asked[key] != value for key, value in ours.items()) or code_changed(since):
            return None
        warm_up(modules)
        if threads() > 1:
            return None
        job = FORK.Process(target=_work, args=(asked, streams, [*others, client], os.getpid()))
        job.start()
        with suppress(OSError):  # who asks is gone: `serve` sees it, and ends the job
            client.sendall(TAKEN)
        return job
    except Exception:  # who asks is gone, or what it needs cannot be imported, which it says better itself
        return None
    finally:
        for stream in streams:
            os.close(stream)


def warm_up(modules: Iterable[str]) -> None:
    """Import what is not imported yet."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        importlib.import_module(name)
    if new:
        gc.collect()
        gc.freeze()  # a worker's collections would touch, and so copy, all that it shares with us


def code_changed(since: float) -> bool:
    """Whether a file of ssm that is imported here has changed since that time: a job runs the code that there is."""
    files = [
        module.__file__
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("ssm", "ssm_kernels")
    ]
    return any(Path(file).stat().st_mtime > since for file in files if file)


def threads() -> int:
    """How many threads this process has, whoever started them."""
    return len([*Path("/proc/self/task").iterdir()])


def _work(asked: dict[str, Any], streams: list[int], others: Iterable[socket.socket], parent: int) -> None:
    """What a worker does."""
    die_with_parent()
    if os.getppid() != parent:  # it was killed before that
        sys.exit(1)
    for other in others:
        other.close()
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["variables"])
    tempfile.tempdir = None  # packages have asked for it in the parent, whose TMPDIR may be another one
    os.chdir(asked["folder"])
    sys.argv = ["ssm", *asked["arguments"]]
    sys.exit(main(asked["arguments"]))


if __name__ == "__main__":
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    except Exception:  # a defect
        traceback.print_exc()
    os._exit(0)  # Python would wait for the workers that are left; the kernel sends them SIGTERM
