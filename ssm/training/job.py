"""The current run, and how it uses the machine. The command line sets the latter; specs and ids do not contain it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ssm.base.errors import ConfigError
from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class Machine:
    """How a run uses the machine. The settings change its numbers only by rounding.

    Attributes:
        group: the processes; each trains its rows of every batch.
        shard: shard the model over the processes (FSDP2), instead of a copy in each.
        micro_batch_tokens: tokens in one forward pass of one process; None: the value of the run's spec.
    """

    group: ProcessGroup = SINGLE_PROCESS
    shard: bool = False
    micro_batch_tokens: int | None = None

    def rows_and_micro_batch(self, training: TrainingSpec) -> tuple[slice, int]:
        """The rows of every batch that this process trains, and the sequences in one forward pass.

        Raises:
            ConfigError: processes would get different numbers of rows, or micro-batches would split sequences.
        """
        size, tokens = self.group.size, self.micro_batch_tokens
        if training.batch_size % size:
            raise ConfigError(
                f"a batch of {training.batch_size} sequences cannot be split evenly over {size} processes; give a "
                "number of processes that divides it"
            )
        if tokens is not None and tokens % training.context:
            raise ConfigError(
                f"micro-batches of {tokens} tokens would split sequences of {training.context} tokens; give a multiple"
            )
        at_once = training.micro_batch_size if tokens is None else tokens // training.context
        return self.group.rows(training.batch_size), min(at_once, training.batch_size // size)


@dataclass(frozen=True)
class Job:
    """One run, trained by one or several processes.

    Attributes:
        parent: folder of the run whose weights it starts from.
        origin: fingerprint of its inputs beyond the spec (`ssm.training.lineage`).
        parameters: number of parameters of the whole model.
    """

    run: RunSpec
    folder: Path
    parent: Path | None
    device: torch.device
    machine: Machine
    origin: str
    parameters: int

    @property
    def group(self) -> ProcessGroup:
        """The processes that train it."""
        return self.machine.group

    @property
    def training(self) -> TrainingSpec:
        return self.run.training

    @cached_property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.training.budget.optimizer_steps(self.training.batch_tokens, self.parameters)
