"""Signals with which a scheduler asks a job to end, and the job's reaction."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from ssm.base.exit_codes import REQUEUE

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # sent by a scheduler before it ends a job
DELAY = 0.1  # seconds until a signal that arrived during an import is sent again


class Preempted(BaseException):
    """The job was asked to end, and its state is on disk. `ssm` exits with `code`.

    Derives from BaseException, like KeyboardInterrupt, so that only `main` catches it.

    Args:
        together: whether all processes of the job agreed to end.
        code: REQUEUE for a signal, or TIME_OVER.
    """

    def __init__(self, message: str, together: bool = False, code: int = REQUEUE):
        super().__init__(message)
        self.together, self.code = together, code


def preempt(number: int) -> None:
    """React to a signal while there is nothing to save.

    A second signal is ignored. Schedulers signal a whole tree of processes, and parents pass signals on as well. The
    exit of this process must not be interrupted.

    During an import, the signal is sent again a moment later. An exception is not safe there: C++ code that initializes
    an extension (such as torch's) can end the process with SIGABRT, and other code catches every exception.
    """
    if _importing(sys._getframe()):
        again = threading.Timer(DELAY, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    for every in SIGNALS:
        signal.signal(every, signal.SIG_IGN)
    raise Preempted(stopped_by(number))


def stopped_by(number: int) -> str:
    """The message of a job that a signal ended while there was nothing to save."""
    return f"stopped by {signal.Signals(number).name}; the same command starts it again"


def _importing(frame: FrameType | None) -> bool:
    """Whether this frame, or one that called it, is Python's import system."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class StopRequest:
    """Records whether a signal asked the job to end."""

    def __init__(self) -> None:
        self.signal: str | None = None  # its name

    def note(self, number: int) -> None:
        self.signal = signal.Signals(number).name


@contextmanager
def on_signals(action: Callable[[int], object]) -> Iterator[None]:
    """Inside the block, SIGTERM and SIGUSR1 call `action` with their number. Outside the main thread: no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        action(number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside the block, a signal is only recorded. The caller has to check the returned request."""
    request = StopRequest()
    with on_signals(request.note):
        yield request


def pass_on_signals(below: Callable[[], Iterable[int]]) -> None:
    """From now on, pass SIGTERM and SIGUSR1 on to the child processes, and continue to run.

    Signal handlers that are set later still work, because this reads the pipe into which Python writes the number of
    every handled signal. A child may also get the signal directly.

    Args:
        below: returns the ids of the child processes.
    """
    heard, written = socket.socketpair()
    written.setblocking(False)
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(written.detach(), warn_on_full_buffer=False)
    threading.Thread(target=_pass_on, args=(heard, below), name="signals", daemon=True).start()


def _pass_on(heard: socket.socket, below: Callable[[], Iterable[int]]) -> None:
    while True:
        numbers = [number for number in heard.recv(16) if number in SIGNALS]
        for process in below() if numbers else ():
            for number in numbers:
                with suppress(ProcessLookupError):  # it has ended
                    os.kill(process, number)
