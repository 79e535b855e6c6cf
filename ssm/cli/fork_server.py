"""The fork server of a workflow's jobs: it imports heavy packages once, and forks a worker for each `ssm` command.

`ssm.base.fork_client.start` starts it and explains why it exists. Do not call it by hand.

A process that forks must have only one thread: a worker would lack the other threads and could wait forever for their
locks. polars starts one thread when it is imported (version 2.1), which removes its files of data that did not fit in
memory. It waits until there are such files. The server itself never computes with polars, so this thread holds no lock.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
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
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from ssm.base.fork_client import TAKEN, identity, same_user
from ssm.base.parent import die_with_parent
from ssm.base.provenance import environment
from ssm.cli.main import main

FORK = multiprocessing.get_context("fork")
REQUEST_SECONDS = 10.0  # how long the server waits for a client's request
IDLE = {"polars-ooc-clea"}  # names of threads that hold no lock in the server; Linux cuts them after 15 letters
SPECS = ("polars", "pyarrow.parquet", "ssm.base.provenance", "ssm.figures.figure", "ssm.specs.measurement")
TRAINING = ("ssm.training.job", "ssm.training.lineage", "ssm.training.loop", "ssm.training.step")
TORCH = (*SPECS, "scipy.stats", "torch._dynamo", "ssm.models.inspect", "ssm.evaluation.measure", *TRAINING)
STATISTICS = (*SPECS, "scipy.stats", "ssm.claims.verdict", "ssm.claims.words")
# The modules that the jobs of a command need. They are imported before the first of these jobs. Jobs of other commands
# run in their own process.
MODULES = {
    "train": TORCH,
    "evaluate": TORCH,
    "judge": STATISTICS,
    "plot": (
        *STATISTICS,
        *(f"matplotlib.backends.backend_{kind}" for kind in ("agg", "pdf", "svg")),
        "ssm.figures.draw",
    ),
    "report": (*STATISTICS, "ssm.report.build"),
}


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve requests until the lifeline is closed.

    Each request gets a forked worker. The server forwards signals to it, and answers with its exit code.
    """
    ours, since = identity(os.environ), time.time()
    jobs: dict[socket.socket, ForkProcess] = {}  # client -> its worker
    while lifeline not in (ready := wait([listener, lifeline, *jobs, *(job.sentinel for job in jobs.values())])):
        for client, job in list(jobs.items()):
            if job.sentinel in ready:
                job.join()
                with suppress(OSError):  # the client is gone
                    client.sendall((job.exitcode or 0).to_bytes(4, "big", signed=True))
            elif client not in ready or _forward_signals(job, client):
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


def _forward_signals(job: ForkProcess, client: socket.socket) -> bool:
    """Send the signals that the client received to the job. End the job if the client is gone, and return False."""
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
    """Fork a worker for a client's request; None if the client has to do the job itself."""
    client.settimeout(REQUEST_SECONDS)
    streams: list[int] = []
    try:
        _, streams, _, _ = socket.recv_fds(client, 1, 2)
        with client.makefile("rb") as lines:
            request = json.loads(lines.readline())
        modules = MODULES.get(request["arguments"][0])
        if modules is None or any(request[key] != value for key, value in ours.items()) or code_changed(since):
            return None
        warm_up(modules)
        if threads() > 1:
            return None
        job = FORK.Process(target=_work, args=(request, streams, [*others, client], os.getpid()))
        job.start()
        with suppress(OSError):  # the client is gone: `serve` notices it and ends the job
            client.sendall(TAKEN)
        return job
    except Exception:  # the client is gone, or an import failed; the client then reports the failed import itself
        return None
    finally:
        for stream in streams:
            os.close(stream)


def warm_up(modules: Iterable[str]) -> None:
    """Import the modules that are not imported yet, and find out what every result says of its environment."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        importlib.import_module(name)
    if new:
        environment()  # cached: git would take every job 20 ms
        gc.collect()
        gc.freeze()  # otherwise a garbage collection in a worker would copy all shared memory


def code_changed(since: float) -> bool:
    """Whether an imported file or a native source changed after that time. A job must then import the code itself."""
    files = [
        module.__file__
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("ssm", "ssm_kernels")
    ]
    return any(Path(file).stat().st_mtime > since for file in (*files, *_native_sources()) if file)


@cache
def _native_sources() -> tuple[Path, ...]:
    """The sources that a job compiles at their first use. To import their package would import torch."""
    spec = importlib.util.find_spec("ssm_kernels")
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return tuple(path for folder in folders for path in folder.rglob("*") if path.suffix in (".cpp", ".h", ".cu"))


def threads() -> int:
    """The number of threads of this process, including those of C libraries, without those that hold no lock."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return len([name for name in names if name not in IDLE])


def _work(request: dict[str, Any], streams: list[int], others: Iterable[socket.socket], parent: int) -> None:
    """Run one job in a worker: with the client's output streams, environment and folder."""
    die_with_parent()
    if os.getppid() != parent:  # the server was killed before that call
        sys.exit(1)
    for other in others:
        other.close()
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["variables"])
    tempfile.tempdir = None  # packages in the server have cached a folder, perhaps from another TMPDIR
    os.chdir(request["folder"])
    sys.argv = ["ssm", *request["arguments"]]
    sys.exit(main(request["arguments"]))


if __name__ == "__main__":
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    except Exception:  # a defect
        traceback.print_exc()
    os._exit(0)  # sys.exit would wait for the remaining workers; the kernel sends them SIGTERM instead
