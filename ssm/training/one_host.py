"""Processes on one host show each other small tensors through memory that all of them see.

Gloo hands a sum to a thread of its own. Where every core is busy with a step of some process, that thread waits for
its turn, up to a tick of the scheduler (4 ms), and the processes with it: longer than a step of a small model takes.
Here a process copies its values to its place, sends a byte to every other and waits for theirs. The waiting is a
system call of the thread that wants the values, so that it needs no turn of another; it also orders what the processes
see of the memory.
"""

from __future__ import annotations

import mmap
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor

CAPACITY = 2**20  # bytes of a process's place: the gradients that lie in one piece (`ssm.training.parallel`)
MEETING = 30.0  # seconds in which the processes of one host find each other
IN_MEMORY = "/dev/shm"  # a file there is never written to a disk


class SharedMemory:
    """Two places of CAPACITY bytes for every process, used in turn.

    A process writes to a place again when all have shown the values behind it, hence have read what lay there: one
    round of bytes an exchange is enough.

    Args:
        rank: this process.
        memory: (2, processes, CAPACITY), bytes that all processes see.
        others: a connection to every other process.
    """

    def __init__(self, rank: int, memory: Tensor, others: list[socket.socket]):
        self.rank, self.memory, self.others = rank, memory, others
        self.turn = 0

    @classmethod
    def of_the_team(cls, rank: int, size: int) -> Self | None:
        """What the processes of the default process group share; None, in each, if they are not all on one host.

        It has no name on the host once they have met: nothing is left behind by a process that is killed.
        """
        name: list[str | None] = [_make_folder(size) if rank == 0 else None]
        dist.broadcast_object_list(name)
        if name[0] is None:
            return None
        folder, met = Path(name[0]), None
        try:
            try:
                server = socket.socket(socket.AF_UNIX)
                server.bind(str(folder / str(rank)))  # on another host there is no such folder
                server.listen(size)
            except OSError:
                server = None
            if _all(server is not None) and server is not None:
                met = cls._meet(rank, size, folder, server)
            return met if _all(met is not None) else None
        finally:
            if rank == 0:
                shutil.rmtree(folder, ignore_errors=True)

    @classmethod
    def _meet(cls, rank: int, size: int, folder: Path, server: socket.socket) -> Self | None:
        """Every process calls those before it and answers those behind it."""
        others = []
        try:
            with server, (folder / "memory").open("r+b") as file:
                server.settimeout(MEETING)
                for other in range(rank):
                    others.append(socket.socket(socket.AF_UNIX))
                    others[-1].connect(str(folder / str(other)))
                others += [server.accept()[0] for _ in range(rank + 1, size)]
                memory = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)
        except OSError:
            return None
        return cls(rank, memory.view(2, size, CAPACITY), others)

    def holds(self, values: Tensor) -> bool:
        """Whether `everybodys` takes values like these."""
        return values.device.type == "cpu" and values.nbytes <= CAPACITY

    def everybodys(self, values: Tensor) -> Tensor:
        """The values (...) of all processes, alike in shape and dtype, by rank: (size, ...).

        To be read before the next call, from when on others may write over them.

        Raises:
            RuntimeError: a process is gone.
        """
        places = self.memory[self.turn, :, : values.nbytes].view(values.dtype)  # (size, numel)
        places = places.view(len(places), *values.shape)
        self.turn = 1 - self.turn
        places[self.rank] = values
        try:
            for other in self.others:
                other.sendall(b".")
            if not all(other.recv(1) for other in self.others):
                raise RuntimeError("a process is gone")
        except OSError as error:
            raise RuntimeError(f"a process is gone ({error})") from error
        return places


def _make_folder(size: int) -> str | None:
    """Where the processes meet, with the memory as a file; None where there is no room for it."""
    parent = IN_MEMORY if Path(IN_MEMORY).is_dir() else None
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="ssm-", dir=parent)
        (Path(folder) / "memory").write_bytes(bytes(2 * size * CAPACITY))  # written: a file with holes may find no room
    except OSError:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        return None
    return folder


def _all(mine: bool) -> bool:
    flag = torch.tensor(int(mine))
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag)
