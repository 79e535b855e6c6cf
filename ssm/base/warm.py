"""A warm parent: a process that has the packages which jobs import, and forks a worker for each `ssm` of a workflow.

To import torch and the like takes seconds of a processor, and a workflow has hundreds of jobs. A workflow on this machine
starts a parent (`start`; what it does is in ssm/cli/parent.py). Each `ssm` below asks it (`ask`): a worker is forked that
works with the arguments, folder, environment and output of who asked, who stays to pass signals on and to end as it ends.

A killed job keeps its promises. With who asked, the worker is killed (SIGKILL). With the parent, or with the workflow, all
workers are told to leave (SIGTERM), and who asked ends with code 76. Where nobody answers, `ssm` works by itself; so it does
when it is another Python's or another environment's, and on other systems than Linux: there a forked process may not use
the system's libraries, and nobody tells a worker that its parent is gone.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ssm.base.exit_codes import LOST
from ssm.base.stopping import on_signals

VARIABLE = "SSM_WARM_PARENT"  # tells a workflow's jobs the name of the parent's socket
TAKEN = b"+"  # the parent's first answer; none: it does not do it
# What differs from job to job: what a shell sets for itself, the temporary folder, and the number of threads, which torch
# is told by an argument of its own.
OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "TEMPDIR", "VECLIB_MAXIMUM_THREADS", VARIABLE})
THREADS = "_NUM_THREADS"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # or numpy starts some when it is imported


def start() -> None:
    """Start a parent for every `ssm` that this process starts from now on. It ends with this process, or its kill."""
    if sys.platform != "linux":
        return
    import subprocess

    name = f"ssm-{os.urandom(16).hex()}"
    lifeline, held = os.pipe()  # nobody writes; it ends when this process does
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")  # of Linux' own kind, which is no file and leaves none behind
        listener.listen(socket.SOMAXCONN)
        handed = (listener.fileno(), lifeline)
        parent = subprocess.Popen(
            [sys.executable, "-m", "ssm.cli.parent", *map(str, handed)],
            pass_fds=handed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's signals come from who asks, once
            env=os.environ | ONE_THREAD,
        )
    os.close(lifeline)
    os.environ[VARIABLE] = name

    def end() -> None:
        os.close(held)
        parent.wait()

    atexit.register(end)


def ask(arguments: Sequence[str]) -> int | None:
    """Have the warm parent's worker do what `ssm` is asked with these arguments.

    Returns:
        Its exit code; None where there is no parent, or none for this job. Who is ended by a signal ends us by the same.
    """
    name = os.environ.pop(VARIABLE, None)  # whatever we start works by itself
    if name is None:
        return None
    request = identity(os.environ) | {"arguments": [*arguments], "folder": os.getcwd(), "variables": {**os.environ}}
    with socket.socket(socket.AF_UNIX) as parent:
        try:
            parent.connect(f"\0{name}")
            if not same_user(parent):
                return None
            socket.send_fds(parent, [b"\0"], [1, 2])
            parent.sendall(json.dumps(request).encode() + b"\n")
            if parent.recv(len(TAKEN)) != TAKEN:
                return None
        except OSError:
            return None
        answer = _accompany(parent)
    if not answer:
        print(
            f"ssm {arguments[0]}: the warm parent of this job is gone; the same command starts it again",
            file=sys.stderr,
        )
        return LOST
    code = int.from_bytes(answer, "big", signed=True)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to take back
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _accompany(parent: socket.socket) -> bytes:
    """Pass signals on until the parent's last answer, and return that; nothing if the parent is gone."""

    def tell(number: int) -> None:
        with suppress(OSError):
            parent.send(bytes([number]))

    with on_signals(tell):
        while True:
            try:
                return parent.recv(4)
            except KeyboardInterrupt:
                tell(signal.SIGINT)
            except OSError:
                return b""


def identity(variables: Mapping[str, str]) -> dict[str, Any]:
    """What a parent and who asks it must have in common: the Python, the code, and the variables read on import."""
    shared = {name: value for name, value in variables.items() if name not in OWN and not name.endswith(THREADS)}
    return {"python": [sys.prefix, sys.version], "code": __file__, "shared": shared}


def same_user(peer: socket.socket) -> bool:
    """Whether who is at the socket's other end is this process' user: every user can see the name and connect to it."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.getuid())
