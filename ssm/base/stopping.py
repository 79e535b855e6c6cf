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
GRACE = 15.0  # seconds until a process exits whose exception for a signal was dropped


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


class StopRequest:
    """Records whether a signal asked the job to end."""

    def __init__(self) -> None:
        self.signal: str | None = None  # its name

    def note(self, number: int) -> None:
        self.signal = signal.Signals(number).name


_ASKED = StopRequest()  # of `preempted_by_signals`


@contextmanager
def preempted_by_signals(verb: str) -> Iterator[None]:
    """Inside the block, SIGTERM and SIGUSR1 raise `Preempted`, for a process that has nothing to save.

    The exception may arise while compiled code calls Python. Such code can replace it by another one (see `cause_of`).
    Such code can also drop it. If it reports that, the signal is sent again a moment later. If it does not, the process
    exits with REQUEUE after GRACE seconds, unless the block has ended.

    During an import, the signal is also sent again a moment later, and so is SIGINT (Ctrl-C). An exception is not safe
    there: C++ code that initializes an extension (such as torch's) can end the process with SIGABRT, and other code
    catches every exception or raises another one.

    If the block ends before that, the exception is raised at its end: the parent has stopped and would count a failure.

    A second signal is ignored. Schedulers signal a whole tree of processes, and parents pass signals on as well. The
    exit of this process must not be interrupted.
    """
    timers: list[threading.Timer] = []
    postponed: list[int] = []
    report_dropped = sys.unraisablehook

    def later(seconds: float, action: Callable[..., object], *arguments: object) -> None:
        timer = threading.Timer(seconds, action, arguments)
        timer.daemon = True
        timers.append(timer)
        timer.start()

    def cancel() -> None:
        for timer in timers:
            timer.cancel()

    def postpone(number: int) -> bool:
        if importing := _importing(sys._getframe()):
            postponed.append(number)
            later(DELAY, os.kill, os.getpid(), number)
        return importing

    def interrupt(number: int) -> None:
        if not postpone(number):
            raise KeyboardInterrupt

    def preempt(number: int) -> None:
        if _ASKED.signal is not None or postpone(number):
            return
        _ASKED.note(number)
        stop = Preempted(stopped_by(number))
        later(GRACE, _end, verb, stop)
        raise stop

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, Preempted) and _ASKED.signal is not None:
            number, _ASKED.signal = signal.Signals[_ASKED.signal], None
            cancel()
            later(DELAY, os.kill, os.getpid(), number)
        else:
            report_dropped(dropped)

    # A shell's background jobs ignore SIGINT.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with on_signals(preempt), on_signals(interrupt, (signal.SIGINT,) if interruptible else ()):
        sys.unraisablehook = again
        try:
            yield
            if postponed:
                raise KeyboardInterrupt if postponed[-1] == signal.SIGINT else Preempted(stopped_by(postponed[-1]))
        except Exception as error:
            cause = cause_of(error)
            if cause is error:
                raise
            raise cause from error
        finally:
            cancel()
            _ASKED.signal = None
            sys.unraisablehook = report_dropped


def cause_of(error: BaseException) -> BaseException:
    """`Preempted` if a signal has asked this process to end (see `preempted_by_signals`), otherwise `error`."""
    if _ASKED.signal is None or isinstance(error, Preempted):
        return error
    return Preempted(stopped_by(signal.Signals[_ASKED.signal]))


def report(verb: str, stop: Preempted | str) -> None:
    """Print why the command `verb` stops. One of several processes does it for all."""
    if os.environ.get("RANK", "0") == "0":
        print(f"ssm {verb}: {stop}", file=sys.stderr, flush=True)


def _end(verb: str, stop: Preempted) -> None:
    """Exit, although the main thread still runs."""
    report(verb, stop)
    os._exit(stop.code)


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


@contextmanager
def on_signals(action: Callable[[int], object], signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Inside the block, these signals call `action` with their number. Outside the main thread: no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        action(number)

    before = {number: signal.signal(number, handle) for number in signals}
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
