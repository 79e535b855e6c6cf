"""What a command and all that it starts print, in a file as well: the option `--log FILE` of every verb.

A process of its own copies (`ssm.base.copier`): it has the last words of a command that is killed, and outlives the
signals that are meant for that. A full disk, or a terminal that has been closed, stops no work.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ssm.base import copier
from ssm.base.errors import UserError

OPTION = "--log"
FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk
STREAMS = (1, 2)  # stdout and stderr
FOR_THE_WORK = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)  # none for the copier


def take_log(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """The arguments without `--log FILE`, and the file: what else is started with them prints into this process's.

    Raises:
        UserError: the option has no value.
    """
    left, file, words = [], None, iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name != OPTION:
            left.append(word)
            continue
        value = value if given else next(words, "")
        if not value.strip() or value.startswith("--"):
            raise UserError(f"argument {OPTION}: expected the path of a file, got '{value}' (is a variable unset?)")
        file = Path(value)
    return left, file


@contextmanager
def logged(path: Path | None) -> Iterator[None]:
    """Within the block stdout and stderr go to `path` as well, also those of other processes that are started.

    What was in the file goes, unless this is one of several processes that torchrun started. None: no file.

    Raises:
        UserError: the file cannot be opened.
    """
    if path is None:
        yield
        return
    file = _open(path)
    pipes = [os.pipe() for _ in STREAMS]
    ours, its = socket.socketpair()
    given = [*(read for read, _ in pipes), file, its.fileno()]
    for descriptor in given:
        os.set_inheritable(descriptor, True)
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-IS", copier.__file__, str(path), *map(str, given)],
        os.environ,
        setsid=True,
        setsigmask=FOR_THE_WORK,
    )
    its.close()
    for descriptor in given[:-1]:
        os.close(descriptor)
    kept = [os.dup(number) for number in STREAMS]
    _put([write for _, write in pipes])
    try:
        yield
    finally:
        _put(kept)
        ours.shutdown(socket.SHUT_WR)
        if not ours.recv(1):  # it has ended; or it has copied all there was, and others still hold the pipes
            os.waitpid(process, 0)
        ours.close()


def _open(path: Path) -> int:
    """A descriptor of the file, to which every process appends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        anew = os.O_TRUNC if os.environ.get("RANK", "0") == "0" else 0
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | anew, 0o666)
    except OSError as error:
        if error.errno in FULL:
            print(f"{path}: cannot be written ({error.strerror}); the work goes on without a log", file=sys.stderr)
            return os.open(os.devnull, os.O_WRONLY)
        raise UserError(f"{path}: no log can be written there ({error.strerror or error})") from error


def _put(descriptors: list[int]) -> None:
    """Let these be stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    for descriptor, number in zip(descriptors, STREAMS, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
