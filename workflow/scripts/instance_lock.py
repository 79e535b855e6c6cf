"""The lock that every running snakemake of this folder holds, together with the others.

Its own jobs do not hold it, but those on a cluster do, which outlive it: they are snakemakes too. The kernel lets go of
it even when a process is killed, so that leftover locks can be told from held ones. Where the disk knows no
such locks, nobody is told of anybody.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ssm.base.errors import UserError
from ssm.base.files import lock

FILE = Path(".snakemake/alive")


def hold_instance_lock(alone: bool = False) -> TextIO | None:
    """Hold the lock until the file is closed, or the process ends; None where files cannot be locked.

    Args:
        alone: insist on being the only one. Who comes meanwhile waits.

    Raises:
        UserError: another one is running.
    """
    with suppress(OSError):
        FILE.parent.mkdir(exist_ok=True)
        file = FILE.open("a+")
        if alone:
            require_only_instance(file)
        else:
            lock(file, alone=False, wait=True)
        return file
    return None


def require_only_instance(file: TextIO) -> None:
    """Hold the lock alone from now on. Raises UserError, as `hold_instance_lock`."""
    if not lock(file, alone=True):
        raise UserError(
            "Another snakemake works in this folder, or the jobs of a killed one on a cluster: "
            "wait until they end, or stop them (scancel)."
        )
