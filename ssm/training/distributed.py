"""The processes that train or measure together: the rank of this process, and sums over all ranks.

Each process trains its own rows of the global batch. A process without others is a group of one (SINGLE_PROCESS). For
it, every function here returns its input.

torchrun and `ssm train --processes N` set the variables that describe the group: RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT. NCCL sums tensors on GPUs, gloo sums tensors on CPUs.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import product

import torch
import torch.distributed as dist
from torch import Tensor

from ssm.base.errors import CheckpointError, ConfigError, UserError, first_line, shown
from ssm.training.failure_detection import CONNECT_TIMEOUT, FailureDetector

STORE_TIMEOUT = timedelta(seconds=CONNECT_TIMEOUT)  # for all processes to find the store
# Of an all-reduce, longer than any job. A process may wait hours for one that has longer texts or waits for its folder.
# `ssm.training.failure_detection` notices at once if a process has died.
ALL_REDUCE_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process, from 0, and the number of processes that work together."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """The rows of a global batch of `count` rows that belong to this process, split evenly in order of rank."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def any_of(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process has set it."""
        if self.size == 1:
            return list(flags)
        return [bool(count) for count in self.total(torch.tensor(flags, dtype=torch.int32))]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            values = values.clone(memory_format=torch.contiguous_format)
            self.all_reduce(values)
        return values

    def all_reduce(self, values: Tensor) -> None:
        """Replace contiguous values by their sum over all processes, with the same bits in each process."""
        if self.size > 1:
            dist.all_reduce(values)

    def all_gather(self, values: Tensor) -> Tensor:
        """The values (...) of all processes, which have the same shape, by rank: (size, ...)."""
        if self.size == 1:
            return values[None]
        stack = values.new_empty(self.size, *values.shape)
        dist.all_gather(list(stack), values.contiguous())
        return stack

    def gather(self, rows: Tensor) -> Tensor:
        """The rows (n_rank, ...) of all processes in order of rank, on the CPU. Only the main process gets them all.

        The other processes get their own rows.

        Raises:
            RuntimeError: a process has died.
        """
        if self.size == 1:
            return rows
        rows = rows.detach().cpu().contiguous()
        counts = self.all_gather(torch.tensor(len(rows))).tolist()
        if not self.main:
            dist.send(rows, 0)
            return rows
        parts = [rows, *(rows.new_empty(count, *rows.shape[1:]) for count in counts[1:])]
        for rank, part in enumerate(parts[1:], 1):
            dist.recv(part, rank)
        return torch.cat(parts)

    def require_same(self, inputs: str, **read: object) -> None:
        """Check that all processes have read the same. On several machines, each may have disks of its own.

        Args:
            inputs: the options that name what they read.
            read: what -> its value in this process.

        Raises:
            CheckpointError: a process has another value.
        """
        if self.size == 1:
            return
        every: list[dict[str, object]] = [{}] * self.size
        dist.all_gather_object(every, read)
        for rank, name in product(range(self.size), read):
            if every[rank][name] != every[0][name]:
                raise CheckpointError(
                    f"process {rank} has {name} {every[rank][name]}, process 0 has {name} {every[0][name]}: {inputs} "
                    "must be on a disk that all machines share"
                )

    def wait(self) -> None:
        """Wait for all processes."""
        self.any_of(False)


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def process_group(device: torch.device, verb: str, less_memory: str = "") -> Iterator[ProcessGroup]:
    """The group of the processes that were started together, within the block. SINGLE_PROCESS for a single process.

    If one process fails or dies, the others end too, and one line reports it (`ssm.training.failure_detection`).

    Args:
        verb: the command that this line names.
        less_memory: its options that need less memory.

    Raises:
        ConfigError: a variable that describes the group is missing or is no such number.
        UserError: the other processes cannot be reached.
    """
    size = _number("WORLD_SIZE") if "WORLD_SIZE" in os.environ else 1
    if size <= 1:
        yield SINGLE_PROCESS
        return
    group, address = ProcessGroup(_number("RANK"), size), _variable("MASTER_ADDR")
    _number("MASTER_PORT")  # torch reads it
    if not 0 <= group.rank < size:
        raise ConfigError(f"RANK is {group.rank}, expected 0 to {size - 1}, because WORLD_SIZE is {size}")
    cannot = f"process {group.rank} of {group.size}: cannot connect to the other processes"
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=STORE_TIMEOUT))
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{cannot} ({first_line(error)})") from error
    try:
        with FailureDetector(group.rank, group.size, address, store, verb, less_memory):
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            try:
                dist.init_process_group(
                    backend, store=store, rank=group.rank, world_size=group.size, timeout=ALL_REDUCE_TIMEOUT
                )
            except (RuntimeError, ValueError) as error:
                raise UserError(f"{cannot} ({first_line(error)})") from error
            yield group
            group.wait()  # otherwise a process that ends early would look dead to a running all-reduce
    finally:
        gc.collect()  # a remaining reference would destroy the group later, and wait forever for another thread
        if dist.is_initialized():
            dist.destroy_process_group()


def _number(name: str) -> int:
    """The value of an environment variable that describes the group."""
    value = _variable(name)
    try:
        return int(value)
    except ValueError:
        expected = "expected a whole number; use torchrun, or --processes N"
        raise ConfigError(f"{name} is {shown(value)}, {expected}") from None


def _variable(name: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"WORLD_SIZE is set, but {name} is missing; use torchrun, or --processes N")
    return os.environ[name]
