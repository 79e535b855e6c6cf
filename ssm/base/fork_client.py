"""The fork server's client. The server has imported most of what jobs need, and forks a worker for each `ssm` of a
workflow.

Importing torch and the like takes seconds of a processor, and a workflow has hundreds of jobs. A workflow on this
machine starts a server (`start`; what it does is in ssm/cli/fork_server.py). Each `ssm` of the workflow asks it
(`ask`): a worker is forked that takes over the arguments, folder, environment and output of who asks, who stays to pass
signals on and to end as the worker ends.

A killed job keeps its promises. When who asks is killed, the worker is (SIGKILL). When the server or the workflow is
killed, all workers are told to leave (SIGTERM), and who asks ends with code 76. Where nobody answers, or not to this
Python, environment or code, `ssm` works by itself; so it always does on other systems than Linux, where forks of such
processes are not safe and nothing tells a worker that its parent is gone.
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

VARIABLE = "SSM_FORK_SERVER"  # the name of the server's socket, for the workflow's jobs
TAKEN = b"+"  # the server's first answer; none: the job is not for it
# What keeps packages from starting threads when they are imported: numpy's two, and pyarrow's allocator.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# The environment's variables that differ from job to job: a shell's own (one that runs a script removes PS1 and PS2),
# the temporary folder, and numbers of threads (THREADS), which torch is told by an argument.
OWN = {"_", "SHLVL", "PS1", "PS2", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "TEMPDIR"}
OWN |= {"VECLIB_MAXIMUM_THREADS", "JE_ARROW_MALLOC_CONF"}
THREADS = "_NUM_THREADS"


def start() -> None:
    """Start a fork server for every `ssm` that this process starts from now on. It ends when this process does."""
    if sys.platform != "linux":
        return
    import subprocess

    name = f"ssm-{os.urandom(16).hex()}"
    lifeline, held = os.pipe()  # the server reads: nothing comes, and the end when this process has ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")  # Linux' own kind of address: no file, so that nothing is left behind
        listener.listen(socket.SOMAXCONN)
        given = (listener.fileno(), lifeline)
        parent = subprocess.Popen(
            [sys.executable, "-m", "ssm.cli.fork_server", *map(str, given)],
            pass_fds=given,
            env=os.environ | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends to all comes from who asks, once
        )
    os.close(lifeline)
    os.environ[VARIABLE] = name

    def end() -> None:
        os.close(held)
        parent.wait()

    atexit.register(end)


def ask(arguments: Sequence[str]) -> int | None:
    """Have a worker of the fork server do what `ssm` is to do with these arguments.

    Returns:
        Its exit code; None if there is no server, or none for this job. A signal that ended the worker ends us as well.
    """
    name = os.environ.pop(VARIABLE, None)  # whatever this process starts works by itself
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
            f"ssm {arguments[0]}: the fork server of this job is gone; the same command starts it again",
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
    """What the server says when the worker has ended, to which signals are passed on; nothing if the server is gone."""

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
    """What a server and who asks have in common: what settled how packages behave when the server imported them."""
    shared = {name: value for name, value in variables.items() if name not in OWN and not name.endswith(THREADS)}
    return {"python": [sys.prefix, sys.version], "code": __file__, "shared": shared}


def same_user(peer: socket.socket) -> bool:
    """Whether this user's process is at the other end: the sockets' names are for everybody to see."""
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.getuid())
