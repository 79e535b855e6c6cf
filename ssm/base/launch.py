"""Run one command in several processes on this machine (`--processes N`).

Like torchrun, it sets RANK, WORLD_SIZE and so on. Unlike torchrun, it exits with the exit code of the processes. A
scheduler needs this code to distinguish a preempted job from a failed one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from ssm.base.exit_codes import LOST, REQUEUE, TIME_OVER
from ssm.base.parent import die_with_parent
from ssm.base.stopping import on_signals, report, stopped_by

GRACE = 20.0  # seconds that other processes may run after the first one fails
POLL = 0.05


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run `ssm` with `arguments` in several processes, and return one exit code for all of them."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # this process has opened the port, so process 0 must not
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    fallback = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes)), "GLOO_SOCKET_IFNAME": "lo"}
    children: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []  # signals so far, which are also sent to processes that start later

    def forward(number: int) -> None:
        signals.append(number)
        for child in children:
            _tell(child, number)

    with on_signals(forward):
        for rank in range(processes):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            children.append(
                subprocess.Popen(
                    [sys.executable, "-m", "ssm", *arguments],
                    env=fallback | os.environ | shared | own,
                    preexec_fn=die_with_parent,
                )
            )
            for number in signals:
                _tell(children[-1], number)
        try:
            _wait(children)
        except KeyboardInterrupt:  # the terminal has sent the signal to the children too
            _wait(children)
    return _code(arguments[0], [child.wait() for child in children], signals)


def _tell(child: subprocess.Popen[bytes], number: int) -> None:
    if child.poll() is None:
        child.send_signal(number)


def _wait(children: list[subprocess.Popen[bytes]]) -> None:
    """Wait for all processes. When one fails, the others have GRACE seconds before they are killed."""
    deadline = float("inf")
    while None in [child.poll() for child in children]:
        if any(child.returncode for child in children):
            deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(POLL)


def _code(verb: str, codes: list[int], told: Sequence[int] = ()) -> int:
    """One exit code for all processes. If one was killed, the others usually report it.

    Args:
        told: signals that this process received. A child that had no signal handlers yet may have ended by one of them.
            It was asked to stop like all others, so it does not count as lost.
    """
    if any(-code in told for code in codes):
        if -codes[0] in told:  # the process that reports for all had no signal handlers yet
            report(verb, stopped_by(-codes[0]))
        return REQUEUE
    for code in (LOST, REQUEUE, TIME_OVER):
        if code in codes:
            return code
    for rank, code in enumerate(codes):
        if code < 0:
            what = f"process {rank} of {len(codes)} was ended by {signal.Signals(-code).name}"
            print(f"ssm {verb}: {what}; the same command continues from the last checkpoint", file=sys.stderr)
            return LOST
    return next((code for code in codes if code), 0)
