"""The signals with which a scheduler asks a job to end, and what the job does then."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from ssm.base.exit_codes import REQUEUE

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # what a scheduler sends ahead of the end


class Preempted(BaseException):
    """Something has asked for the end, and all that is to be kept is on disk. `ssm` exits with `code`.

    Derives from BaseException, like KeyboardInterrupt, so that only `main` catches it.

    Args:
        together: all processes of the job have agreed on it.
        code: REQUEUE for a signal, TIME_OVER.
    """

    def __init__(self, message: str, together: bool = False, code: int = REQUEUE):
        super().__init__(message)
        self.together, self.code = together, code


def preempt(number: int) -> NoReturn:
    """The answer to a signal while there is nothing to save.

    There is no answer to a second one: schedulers send it to a whole tree of processes, whose parents pass it on as
    well, and what this one does on its way out is not to be interrupted.
    """
    for every in SIGNALS:
        signal.signal(every, signal.SIG_IGN)
    raise Preempted(f"stopped by {signal.Signals(number).name}; the same command starts it again")


class StopRequest:
    """Whether a signal has asked for the end."""

    def __init__(self) -> None:
        self.signal: str | None = None  # its name

    def note(self, number: int) -> None:
        self.signal = signal.Signals(number).name


@contextmanager
def on_signals(action: Callable[[int], object]) -> Iterator[None]:
    """Within the block SIGTERM and SIGUSR1 call `action` with their number. In a thread, which has none, nothing."""
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
    """Within the block a signal does no more than to be noted; somebody has to look."""
    request = StopRequest()
    with on_signals(request.note):
        yield request


def pass_on_signals(below: Callable[[], Iterable[int]]) -> None:
    """From now on send SIGTERM and SIGUSR1 on to the processes below this one, and live on.

    Whatever handler comes later for them is called as well: what is looked at is the pipe into which Python writes the
    number of any signal that it handles. Some of the processes below may have got the signal themselves.

    Args:
        below: the ids of these processes.
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
