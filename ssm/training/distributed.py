"""The process group that trains or measures together: this process's rank, and the sums over all ranks.

Training knows "the rows of the global batch that are mine". A process by itself is a group of one (SINGLE_PROCESS), for
which every function here returns what it was given.

Processes are told of each other by the variables that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT), and so does `ssm train --processes N`. Sums of a GPU's tensors go over NCCL, of the CPU's over gloo.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from ssm.base.errors import ConfigError, UserError
from ssm.training.failure_detection import HELLO, FailureDetector

MEETING = timedelta(seconds=HELLO)  # in which all processes find the store
# Of a sum: longer than a job. A process may wait for hours for one that is well and busy (it has the longer texts, or
# waits for its folder); one that is gone is noticed at once (`ssm.training.failure_detection`).
TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class ProcessGroup:
    """This process (`rank`, from 0) among the `size` processes that work together."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Which of `count` rows of a global batch are this process's: in the order of ranks, as even as can be."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def any_of(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set in any process."""
        if self.size == 1:
            return list(flags)
        return [bool(count) for count in self.total(torch.tensor(flags, dtype=torch.int32))]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            values = values.clone(memory_format=torch.contiguous_format)
            self.add_up(values)
        return values

    def add_up(self, values: Tensor) -> None:
        """Replace values, contiguous, by their sum over all processes: to the same bits in each."""
        if self.size > 1:
            dist.all_reduce(values)

    def stacked(self, values: Tensor) -> Tensor:
        """The values (...) of all processes, alike in shape, by rank: (size, ...)."""
        if self.size == 1:
            return values[None]
        stack = values.new_empty(self.size, *values.shape)
        dist.all_gather(list(stack), values.contiguous())
        return stack

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows (n_rank, ...) of all processes in the order of ranks, on the CPU; at the others than main their own.

        Raises:
            RuntimeError: a process is gone.
        """
        if self.size == 1:
            return rows
        rows = rows.detach().cpu().contiguous()
        counts = self.stacked(torch.tensor(len(rows))).tolist()
        if not self.main:
            dist.send(rows, 0)
            return rows
        parts = [rows, *(rows.new_empty(count, *rows.shape[1:]) for count in counts[1:])]
        for rank, part in enumerate(parts[1:], 1):
            dist.recv(part, rank)
        return torch.cat(parts)

    def wait(self) -> None:
        """Until every process is here."""
        self.any_of(False)


SINGLE_PROCESS = ProcessGroup()


def is_worker() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group(device: torch.device, verb: str) -> Iterator[ProcessGroup]:
    """Within the block, the group of the processes that were started with this one; SINGLE_PROCESS if none were.

    When one of them fails or is gone, the others end as well, and one line says so (`ssm.training.failure_detection`).

    Raises:
        ConfigError: the variables that tell of the others are incomplete.
        UserError: the others cannot be reached.
    """
    if not is_worker():
        yield SINGLE_PROCESS
        return
    try:
        group = ProcessGroup(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        address = os.environ["MASTER_ADDR"]
        os.environ["MASTER_PORT"]
    except (KeyError, ValueError) as error:
        raise ConfigError(f"WORLD_SIZE is set, but {error} is missing; use torchrun, or --processes N") from error
    cannot = f"process {group.rank} of {group.size}: cannot meet the others"
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=MEETING))
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{cannot} ({_first(error)})") from error
    try:
        with FailureDetector(group.rank, group.size, address, store, verb):
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            try:
                dist.init_process_group(backend, store=store, rank=group.rank, world_size=group.size, timeout=TIMEOUT)
            except (RuntimeError, ValueError) as error:
                raise UserError(f"{cannot} ({_first(error)})") from error
            yield group
            group.wait()  # whoever ends first would look lost to a sum under way
    finally:
        gc.collect()  # what still holds the group would end it later, and wait forever for a thread that waits for us
        if dist.is_initialized():
            dist.destroy_process_group()


def _first(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
