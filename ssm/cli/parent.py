"""The warm parent of a workflow's jobs (ssm/base/warm.py), which starts it: `python -m ssm.cli.parent LISTENER LIFELINE`.

It forks, so it must not have threads: these would be missing in a worker, with whatever they hold. Packages that start some
when they are imported (polars, pyarrow) are left to the workers; so is ssm itself, whose code a job reads as it is when
the job begins.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from typing import Any

from ssm.base.launch import die_with_parent
from ssm.base.warm import TAKEN, identity, same_user
from ssm.cli.main import main

TORCH = ("pydantic", "numpy", "safetensors.torch", "tokenizers", "torch", "torch._dynamo", "tqdm")
STATISTICS = ("pydantic", "numpy", "scipy.special", "scipy.stats")
PICTURES = (*(f"matplotlib.backends.backend_{name}" for name in ("agg", "pdf", "svg")), "matplotlib.figure")
# What the jobs of a verb import, and when the first of them comes, we do. Jobs of other verbs work by themselves.
PACKAGES = {
    "train": TORCH,
    "evaluate": (*TORCH, *STATISTICS),
    "judge": STATISTICS,
    "plot": (*STATISTICS, *PICTURES),
    "report": (*STATISTICS, "jinja2"),
}
PATIENCE = 10.0  # seconds for a request: who asks has it ready


def serve(listener: socket.socket, lifeline: int) -> None:
    """Fork a worker for each request, tell it the signals that come, answer with its exit code; until the lifeline ends."""
    ours = identity(os.environ)
    jobs: dict[socket.socket, ForkProcess] = {}  # who asked -> the worker
    while lifeline not in (ready := wait([listener, lifeline, *jobs, *(job.sentinel for job in jobs.values())])):
        for client, job in list(jobs.items()):
            if job.sentinel in ready:
                _answer(client, job)
            elif client not in ready or _tell(job, client):
                continue
            client.close()
            del jobs[client]
        if listener in ready:
            client, _ = listener.accept()
            started = _take(client, ours, [listener, *jobs])
            if started is None:
                client.close()
            else:
                jobs[client] = started


def _answer(client: socket.socket, job: ForkProcess) -> None:
    job.join()
    with suppress(OSError):  # who asked is gone
        client.sendall((job.exitcode or 0).to_bytes(4, "big", signed=True))


def _tell(job: ForkProcess, client: socket.socket) -> bool:
    """Pass on the signals that who asked has got; if that is gone, end the job. Returns whether it goes on."""
    try:
        numbers = client.recv(64)
    except OSError:
        numbers = b""
    for number in numbers:
        os.kill(job.pid or 0, number)
    if not numbers:
        job.kill()
        job.join()
    return bool(numbers)


def _take(client: socket.socket, ours: dict[str, Any], others: Iterable[socket.socket]) -> ForkProcess | None:
    """Fork a worker for the request that this client sends; None where it is no job for us."""
    if not same_user(client):
        return None
    client.settimeout(PATIENCE)
    streams: list[int] = []
    try:
        _, streams, _, _ = socket.recv_fds(client, 1, 2)
        with client.makefile("rb") as lines:
            request = json.loads(lines.readline())
        packages = PACKAGES.get(request["arguments"][0])
        if packages is None or any(request[key] != value for key, value in ours.items()):
            return None
        _warm_up(packages)
        if threads() > 1:
            return None
        job = multiprocessing.get_context("fork").Process(
            target=_work, args=(request, streams, [*others, client], os.getpid())
        )
        job.start()
        client.sendall(TAKEN)
        return job
    except (OSError, ValueError):
        return None
    finally:
        for stream in streams:
            os.close(stream)


def _warm_up(packages: Iterable[str]) -> None:
    new = [name for name in packages if name not in sys.modules]
    for name in new:
        importlib.import_module(name)
    if new:
        gc.collect()
        gc.freeze()  # a worker's collections leave alone what it shares with us, or it would copy all of it


def threads() -> int:
    """How many threads this process has, whoever started them."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _work(request: dict[str, Any], streams: list[int], others: Iterable[socket.socket], parent: int) -> None:
    """What a worker does."""
    die_with_parent()
    if os.getppid() != parent:  # it was killed before that
        os._exit(-signal.SIGTERM)
    for other in others:
        other.close()
    for stream, ours in zip(streams, (1, 2), strict=True):
        os.dup2(stream, ours)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.argv = ["ssm", *request["arguments"]]
    sys.exit(main(request["arguments"]))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    os._exit(0)  # workers that are left are sent SIGTERM by the kernel
