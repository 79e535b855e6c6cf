"""A shared lock that every running snakemake of this folder holds. It shows whether another snakemake is running.

Local jobs do not hold it. Jobs on a cluster do, because each is a snakemake itself and may outlive the first one. The
kernel releases the lock also when a process is killed. On disks without such locks, nothing is known about others.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ssm.base.errors import UserError
from ssm.base.files import lock

FILE = Path(".snakemake/alive")


def hold_instance_lock(alone: bool) -> TextIO | None:
    """Hold the lock until the file is closed or the process ends; None if files cannot be locked.

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
