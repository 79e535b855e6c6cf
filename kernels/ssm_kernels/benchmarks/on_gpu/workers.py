"""Do the tasks of a stage in worker processes. A worker that crashes or hangs costs its task only."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from ssm_kernels.benchmarks.on_gpu.stages import Stage
from ssm_kernels.benchmarks.on_gpu.task import Setting

Answer = dict[str, Any]
START_SECONDS = 120  # a worker that has not answered by then is ended
END_SECONDS = 10  # a process that waits for the GPU may end late, or never


class WorkerError(Exception):
    """The worker could not start. The message says why, in one line."""


class Worker:
    """A worker process, which has answered that it is ready."""

    def __init__(self, stage: Stage, setting: Setting, log: IO[str], seconds: float = START_SECONDS) -> None:
        """
        Args:
            seconds: how long it may take to start, at most START_SECONDS.

        Raises:
            WorkerError: it did not start.
        """
        self.process = subprocess.Popen(
            command(stage.name, setting), env=environment(setting), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
        self.ended = False
        self.hello = self._answer(min(seconds, START_SECONDS)) or {"error": "the worker did not start; see the log"}
        if "error" in self.hello:
            self.end()
            raise WorkerError(self.hello["error"])

    def do(self, name: str, seconds: float) -> Answer | None:
        """The answer to a task; None if it took longer than `seconds`. Then the worker has ended."""
        assert self.process.stdin is not None
        start = time.monotonic()
        try:
            self.process.stdin.write(f"{name}\n")
            self.process.stdin.flush()
            answer = self._answer(seconds)
        except (OSError, ValueError):
            answer = None
        if answer is not None:
            if answer.pop("broken"):
                self.end()
            return answer
        took = time.monotonic() - start
        if took < seconds:
            self._wait()
        code = self.process.poll()
        self.end()
        return None if code is None else {"state": "failed", "reason": _ended(code), "seconds": round(took, 2)}

    @property
    def alive(self) -> bool:
        return not self.ended and self.process.poll() is None

    def end(self) -> None:
        """End the process and all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._wait()
        self.ended = True

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)

    def _answer(self, seconds: float) -> Answer | None:
        """The next line of the worker; None if it ended, or did not answer in time."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


def command(stage: str, setting: Setting, *more: str) -> list[str]:
    """The command line of a worker."""
    words = [sys.executable, "-m", "ssm_kernels.benchmarks.on_gpu.worker", stage, "--out", str(setting.out), *more]
    return [*words, "--rehearse"] if setting.rehearse else words


def environment(setting: Setting) -> dict[str, str]:
    """The environment of a worker: this project first in the path, and Triton's interpreter in a rehearsal."""
    path = [str(setting.root / "kernels"), str(setting.root), *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if setting.rehearse else {}
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)} | more


def do_tasks(
    stage: Stage, setting: Setting, names: Sequence[str], first: Worker, end: float, log: IO[str],
    on_answer: Callable[[str, Answer], None],
) -> None:  # fmt: skip
    """Do tasks until all are done, or the stage's time is over. Tasks that did not end in time get no answer.

    Args:
        names: the tasks, in order.
        first: a worker that is ready. This function ends it.
        end: when the time is over, by time.monotonic().
        on_answer: called with a task and its answer, by one thread at a time.
    """
    waiting = list(names)
    count = max(1, min(stage.workers, len(names), os.cpu_count() or 1))
    working = count  # threads that still take tasks
    lock = threading.Lock()

    def work(worker: Worker | None) -> None:
        nonlocal working
        while True:
            with lock:
                if not waiting or time.monotonic() >= end:
                    working -= 1
                    break
                name = waiting.pop(0)
            try:
                if worker is None or not worker.alive:
                    worker = Worker(stage, setting, log, end - time.monotonic())
            except WorkerError as error:
                with lock:
                    if working > 1:  # the other workers do it
                        waiting.insert(0, name)
                        working -= 1
                        break
                    if time.monotonic() < end:
                        on_answer(name, {"state": "failed", "reason": str(error), "seconds": 0.0})
                continue
            left = end - time.monotonic()
            answer = worker.do(name, min(left, stage.task_seconds))
            if answer is None and left > stage.task_seconds:
                limit = stage.task_seconds
                answer = {"state": "failed", "reason": f"no answer in {limit:g} s", "seconds": float(limit)}
            if answer is not None:
                with lock:
                    on_answer(name, answer)
        if worker is not None:
            worker.end()

    # Daemons, because an interrupted command must not wait for its tasks. Its workers end with it.
    threads = [threading.Thread(target=work, args=(None if number else first,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ended(code: int) -> str:
    return f"the process was ended by signal {-code}" if code < 0 else f"the process ended with exit code {code}"
