"""A scheduler's signals: whoever gets one and whenever it comes, the end is the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from ssm.base import launch as module
from ssm.base.exit_codes import LOST, REQUEUE, TIME_OVER
from ssm.base.stopping import SIGNALS, Preempted, preempted_by_signals

SECONDS = 60.0
ENDS = "import sys; from ssm.cli.main import main; sys.exit(main(['--version']))"


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_handlers_are_there_though_the_signals_were_ignored() -> None:
    """As by a shell's `trap ''`, which its children inherit."""
    code = "import signal; from ssm.base.stopping import SIGNALS; [signal.signal(n, signal.SIG_IGN) for n in SIGNALS]; "
    code += "import ssm.cli.main as module; module._dispatch = lambda *given: signal.raise_signal(signal.SIGTERM); "
    heeding = python(code + ENDS)
    assert heeding.wait(SECONDS) == REQUEUE, heeding.communicate()


def test_a_second_signal_does_not_interrupt_the_way_out() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    done = []

    def work() -> None:
        with preempted_by_signals("train"):
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                for number in SIGNALS:
                    signal.raise_signal(number)
                done.append("tidied up")

    with pytest.raises(Preempted, match="stopped by SIGTERM"):
        work()
    assert done
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(("number", "work"), [*product((*SIGNALS, signal.SIGINT), ["time.sleep(60)", "0"])])
def test_a_signal_during_an_import_waits_for_its_end(tmp_path: Path, number: int, work: str) -> None:
    """While torch is imported, an exception can end the process with SIGABRT. This module drops the exception.

    Snakemake has stopped at the signal. It counts a job as failed that then ends without REQUEUE.
    """
    (tmp_path / "dropping.py").write_text(
        f"import contextlib, signal\nwith contextlib.suppress(BaseException):\n    signal.raise_signal({number})\n"
    )
    code = f"import sys, time; sys.path.insert(0, {str(tmp_path)!r}); import ssm.cli.main as module; "
    code += "module._dispatch = lambda *given: (__import__('dropping'), " + work + ")[1]; "
    importing = python(code + ENDS)
    said = importing.communicate(timeout=SECONDS)
    stopped = f"stopped by {signal.Signals(number).name}; the same command starts it again"
    exit_code, says = (130, "interrupted") if number == signal.SIGINT else (REQUEUE, stopped)
    assert (importing.returncode, *said) == (exit_code, "", f"ssm --version: {says}\n")


# Python drops every exception of __del__ and reports it, and torch replaces those of __index__.
SIGNALED = """
import contextlib, signal, sys, time
import torch
import ssm.base.stopping as stopping
import ssm.cli.main as module

class Index:
    def __index__(self):
        signal.raise_signal({number})

class Deleted:
    def __del__(self):
        signal.raise_signal({number})

def silently():
    with contextlib.suppress(BaseException):
        signal.raise_signal({number})

stopping.GRACE = {grace}
module._dispatch = lambda *given: ({work}, time.sleep(60))
sys.exit(module.main(["train"]))
"""


@pytest.mark.parametrize(
    ("work", "grace"), [("Deleted() and 0", 60), ("torch.empty(3)[Index()]", 60), ("silently()", 0.2)]
)
def test_a_signal_whose_exception_is_dropped_or_replaced_ends_the_command_too(work: str, grace: float) -> None:
    running = python(SIGNALED.format(work=work, grace=grace, number=int(signal.SIGTERM)))
    said = running.communicate(timeout=SECONDS / 2)
    assert (running.returncode, said[0]) == (REQUEUE, "")
    assert said[1] == "ssm train: stopped by SIGTERM; the same command starts it again\n"


# A failed sum of several processes is a RuntimeError too: the cause of that is waited for.
REPLACED = """
import signal
from torch.distributed import HashStore
import ssm.base.stopping as stopping
import ssm.training.failure_detection as detection

detection.MESSAGE_TIMEOUT = stopping.GRACE = 1000.0
with stopping.preempted_by_signals("train"), detection.FailureDetector(0, 1, "localhost", HashStore(), "train", ""):
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        raise RuntimeError("replaced")
"""


def test_a_process_of_a_group_does_not_wait_for_the_cause_of_a_replaced_signal() -> None:
    running = python(REPLACED)
    said = running.communicate(timeout=SECONDS / 2)
    assert (running.returncode, said[0]) == (REQUEUE, "")
    assert said[1] == "ssm train: stopped by SIGTERM; the same command starts it again\n"


# The exception is dropped, and the signal that is sent again comes while the command saves, or after its end.
SAVES = """
import signal, sys, time
import ssm.base.stopping as stopping
import ssm.cli.main as module

class Signaled:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def saves(*given):
    Signaled() and 0
    with stopping.stop_requests() as stop:
        while stop.signal is None:
            time.sleep(0.01)
        time.sleep(3 * stopping.GRACE)
        print("saved")
        return 75

def ends(*given):
    Signaled() and 0
    return 0

stopping.GRACE = 0.3
module._dispatch = {work}
code = module.main(["train"])
time.sleep(3 * stopping.DELAY)
sys.exit(code)
"""


@pytest.mark.parametrize(("work", "code", "said"), [("saves", REQUEUE, "saved\n"), ("ends", 0, "")])
def test_a_signal_that_is_sent_again_disturbs_neither_saving_nor_the_caller(work: str, code: int, said: str) -> None:
    running = python(SAVES.format(work=work))
    assert running.communicate(timeout=SECONDS / 2) == (said, "")
    assert running.returncode == code


# Works long before it has handlers, and writes down that it is there.
SLOW = """
import pathlib, sys, time
pathlib.Path({folder!r}, sys.argv[1]).touch()
time.sleep(1.0)
from ssm.base.stopping import Preempted, preempted_by_signals
try:
    with preempted_by_signals("train"):
        time.sleep(60)
except Preempted as stop:
    sys.exit(stop.code)
"""


@pytest.mark.parametrize(
    ("begun", "number"),
    [
        (1, SIGNALS[0]),
        *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((1, SIGNALS[1]), *product((2,), SIGNALS))),
    ],
)
def test_processes_that_are_only_starting_leave_like_any_others(tmp_path: Path, begun: int, number: int) -> None:
    """The launcher is told when the first of two is there, or both; none has handlers then."""
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path)))
    (tmp_path / "launch.py").write_text(
        "import os, subprocess, sys, time, torch\nfrom ssm.base import launch as module\nreal = subprocess.Popen\n"
        "def started(command, **given):\n"
        f"    child = real([sys.executable, {str(tmp_path / 'slow.py')!r}, given['env']['RANK']], **given)\n"
        f"    time.sleep(0.5 * ({begun} == 1))\n"
        "    return child\n"
        "module.subprocess.Popen = started\n"
        "sys.exit(module.launch(2, ['train']))\n"
    )
    launcher = subprocess.Popen([sys.executable, str(tmp_path / "launch.py")], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + SECONDS
    while not (tmp_path / str(begun - 1)).exists():
        assert launcher.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    launcher.send_signal(number)
    sent = time.monotonic()
    _, said = launcher.communicate(timeout=SECONDS)
    line = f"ssm train: stopped by {signal.Signals(number).name}; the same command starts it again\n"
    assert (launcher.returncode, said) == (REQUEUE, line)
    assert time.monotonic() - sent < module.GRACE / 2, "the second one was told too, not killed when it did not end"


TERM, KILL = -signal.SIGTERM, -signal.SIGKILL


@pytest.mark.parametrize(
    ("codes", "told", "code"),
    [
        ([0, 0], [], 0),
        ([2, 0], [], 2),
        ([REQUEUE, REQUEUE], [signal.SIGTERM], REQUEUE),
        ([TIME_OVER, TIME_OVER], [], TIME_OVER),
        ([TERM, REQUEUE], [signal.SIGTERM], REQUEUE),
        ([REQUEUE, TERM], [signal.SIGTERM], REQUEUE),
        ([TERM, LOST], [signal.SIGTERM], REQUEUE),  # it takes the first for lost
        ([TERM, LOST], [], LOST),  # nobody told us: it was that one's own end
        ([TERM, LOST], [signal.SIGUSR1], LOST),
        ([KILL, LOST], [signal.SIGTERM], LOST),
        ([KILL, 0], [], LOST),
    ],
)
def test_one_exit_code_for_all(
    codes: list[int], told: list[int], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module._code("train", codes, told) == code
    stopped = "ssm train: stopped by SIGTERM; " in capsys.readouterr().err
    assert stopped == (codes[0] == TERM and signal.SIGTERM in told), "process 0 has not reported it"


# Passes signals on and has a handler of its own, like the snakemake of a compute node, whose scheduler handles SIGTERM.
ABOVE = r"""
import os, signal, subprocess, sys
import psutil
from ssm.base.stopping import pass_on_signals
pass_on_signals(lambda: [child.pid for child in psutil.Process().children(recursive=True)])
signal.signal(signal.SIGTERM, lambda *about: os.write(1, b"its own\n"))
sys.exit(subprocess.call(["bash", "-c", "trap : TERM USR1; bash -c \"$0\"; exit $?", sys.argv[1]]))
"""
BELOW = "trap 'echo USR1' USR1; trap 'echo TERM; exit 75' TERM; echo up; for i in {1..600}; do sleep 0.1; done"


def test_signals_reach_every_process_below_and_other_handlers_too() -> None:
    above = subprocess.Popen(
        [sys.executable, "-c", ABOVE, BELOW], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert above.stdout is not None
    try:
        assert above.stdout.readline() == "up\n"
        above.send_signal(signal.SIGUSR1)
        assert above.stdout.readline() == "USR1\n"
        above.send_signal(signal.SIGTERM)
        assert sorted(above.stdout.readlines()) == ["TERM\n", "its own\n"]
        assert above.wait(SECONDS) == 75
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(above.pid, signal.SIGKILL)
