"""Two shared locks that every running snakemake holds. They show whether another one uses this folder or its results.

Local jobs do not hold them. Jobs on a cluster hold that of the folder, because each is a snakemake itself and may
outlive the first one. The kernel releases a lock also when a process is killed. On disks without such locks, nothing is
known about others.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ssm.base.errors import OutputError, UserError
from ssm.base.files import lock, reading, writing

FILE = Path(".snakemake/alive")


def hold_instance_lock(alone: bool) -> TextIO | None:
    """Hold the lock of this folder until the file is closed or the process ends; None if files cannot be locked.

    Args:
        alone: take the lock exclusively. Another snakemake that starts meanwhile waits.

    Raises:
        UserError: another snakemake is running.
    """
    with suppress(OSError):
        FILE.parent.mkdir(exist_ok=True)
        file = FILE.open("a+")
        if alone:
            require_only_instance(file)
        else:
            lock(file, alone=False, wait=True)
        with FILE.open("a+") as other:
            if not lock(other, alone=True):  # the disk supports locks: our own lock blocks a second one
                return file
    return None


def require_only_instance(file: TextIO) -> None:
    """Take the lock exclusively. Raises UserError, like `hold_instance_lock`."""
    if not lock(file, alone=True):
        raise UserError(
            "Another snakemake is running in this folder, or a killed one has jobs on a cluster: "
            "wait until they end, or stop them (scancel)."
        )


def hold_results(results: Path) -> TextIO:
    """Hold a lock on the results of a scale until the file is closed. Snakemake itself locks only its own folder.

    Raises:
        UserError: a snakemake in another folder or on another host uses the results.
        OutputError: a file there cannot be written, or that of another snakemake cannot be read.
    """
    holders = results / ".workflows"
    # The host is part of the name: two hosts may have clones at the same path, and share the disk of the results.
    here = f"{Path.cwd()} on {socket.gethostname()}"
    path = holders / hashlib.sha256(here.encode()).hexdigest()[:8]
    with writing(path):
        holders.mkdir(parents=True, exist_ok=True)
        mine = path.open("a+")
        lock(mine, alone=False, wait=True)
        mine.truncate(0)
        print(here, file=mine, flush=True)
    for name in {*holders.iterdir()} - {path}:
        with reading(OutputError, name), _opened(name) as other:
            if not lock(other, alone=True):
                other.seek(0)
                raise UserError(f"A snakemake in {other.read().strip()} uses {results}: wait until it ends, or stop it")
    return mine


def _opened(path: Path) -> TextIO:
    """A file to lock. On NFS, an exclusive lock needs the right to write, which another user's file may not give."""
    try:
        return path.open("a+")
    except PermissionError:
        return path.open()
