"""Client of the fork server. The server has imported torch, and forks a worker for each `ssm` call of a workflow.

Importing torch takes seconds, and a workflow has hundreds of jobs. So a workflow on this machine starts a server
(`start`; ssm/cli/fork_server.py has its code). Each `ssm` call of the workflow is a client (`run_in_worker`). The
server forks a worker with the arguments, folder, environment and output of the client. The client passes signals on and
exits with the worker's exit code.

Kills work as without a server. If the client is killed, its worker is killed (SIGKILL). If the server or the workflow
is killed, all workers get SIGTERM, and clients exit with code 76. If no server answers, or its Python, environment or
code differ, `ssm` works without it. Other systems than Linux never use a server: forks are not safe there, and a worker
does not notice the end of its parent.
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
from pathlib import Path
from typing import Any

from ssm.base.exit_codes import LOST
from ssm.base.stopping import on_signals

VARIABLE = "SSM_FORK_SERVER"  # environment variable with the name of the server's socket
TAKEN = b"+"  # the server's first answer if it accepts a job; otherwise it sends nothing
# Variables that keep packages from starting threads at their import: numpy's two, and those of the allocators of
# pyarrow and polars.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
# Environment variables that may differ between jobs: those of a shell (one that runs a script removes PS1 and PS2), the
# temporary folder, and numbers of threads (THREADS), which torch gets as an argument.
OWN = {"_", "SHLVL", "PS1", "PS2", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "TEMPDIR"}
OWN |= {"VECLIB_MAXIMUM_THREADS", "JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF"}
THREADS = "_NUM_THREADS"


def start() -> None:
    """Start a fork server for all `ssm` calls that this process starts from now on. It ends with this process."""
    if sys.platform != "linux":
        return
    import subprocess

    name = f"ssm-{os.urandom(16).hex()}"
    lifeline, held = os.pipe()  # the server reads it, and sees its end when this process ends
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")  # an abstract address of Linux, without a file
        listener.listen(socket.SOMAXCONN)
        given = (listener.fileno(), lifeline)
        parent = subprocess.Popen(
            [sys.executable, "-m", "ssm.cli.fork_server", *map(str, given)],
            pass_fds=given,
            env=os.environ | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # signals from a terminal then come only from the client
        )
    os.close(lifeline)
    os.environ[VARIABLE] = name

    def end() -> None:
        os.close(held)
        parent.wait()

    atexit.register(end)


def run_in_worker(arguments: Sequence[str]) -> int | None:
    """Run `ssm` with these arguments in a worker of the fork server.

    Returns:
        The worker's exit code; None if there is no server for this job. A signal that ended the worker also ends this
        process.
    """
    name = os.environ.pop(VARIABLE, None)  # processes that this one starts do not use the server
    if name is None:
        return None
    place = {"arguments": [*arguments], "folder": str(Path.cwd()), "variables": {**os.environ}}
    with socket.socket(socket.AF_UNIX) as parent:
        try:
            parent.connect(f"\0{name}")
            if not same_user(parent):
                return None
            socket.send_fds(parent, [b" "], [1, 2])
            parent.sendall(json.dumps(identity(os.environ) | place).encode() + b"\n")
            if parent.recv(len(TAKEN)) != TAKEN:
                return None
        except OSError:
            return None
        answer = _last_answer(parent)
    if not answer:
        print(
            f"ssm {arguments[0]}: the fork server of this job has ended; run the same command again",
            file=sys.stderr,
        )
        return LOST
    code = int.from_bytes(answer, "big", signed=True)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _last_answer(parent: socket.socket) -> bytes:
    """The server's answer after the worker's end; empty if the server has ended. Passes signals on to the worker."""

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
    """What a server and its client must share: everything that affects the packages which the server imported.

    The paths of Python and of the code have no symlinks, because several paths can lead to the same environment.
    """
    shared = {name: value for name, value in variables.items() if name not in OWN and not name.endswith(THREADS)}
    python, code = Path(sys.prefix).resolve(), Path(__file__).resolve()
    return {"python": [str(python), sys.version], "code": str(code), "shared": shared}


def same_user(peer: socket.socket) -> bool:
    """Whether the other end is a process of this user. All users can see the names of the sockets."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.getuid())
