"""Whether a snakemake is at work in this folder: every living one holds a file here, together with the others.

Its own jobs do not hold it, but those on a cluster do, which outlive it: they are snakemakes too. The kernel lets go of
it even when a process is killed, so that leftover locks can be told from those of the living. Where the disk knows no
such locks, nobody is told of anybody.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ssm.base.errors import UserError
from ssm.base.files import lock

FILE = Path(".snakemake/alive")


def hold(alone: bool = False) -> TextIO | None:
    """Be alive here until the file is closed, or the process ends; None where files cannot be held.

    Args:
        alone: insist on being the only one. Who comes meanwhile waits.

    Raises:
        UserError: another one is alive.
    """
    with suppress(OSError):
        FILE.parent.mkdir(exist_ok=True)
        file = FILE.open("a+")
        if alone:
            insist(file)
        else:
            lock(file, alone=False, wait=True)
        return file
    return None


def insist(file: TextIO) -> None:
    """Be the only one from now on. Raises UserError, as `hold`."""
    if not lock(file, alone=True):
        raise UserError(
            "Another snakemake works in this folder, or the jobs of a killed one on a cluster: "
            "wait until they end, or stop them (scancel)."
        )
