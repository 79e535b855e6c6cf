"""How a run is spread over a machine: a matter of the command line, and of no spec."""

from __future__ import annotations

from dataclasses import dataclass

from ssm.base.errors import ConfigError
from ssm.specs.training import TrainingSpec
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class Machine:
    """How a run is spread over a machine. It is the same run: its numbers differ by rounding alone.

    Attributes:
        group: the processes; each trains its rows of every batch.
        shard: spread the model over the processes (FSDP2), instead of a copy in each.
        micro_batch_tokens: tokens a forward pass of one process; None: as the run's spec says.
    """

    group: ProcessGroup = SINGLE_PROCESS
    shard: bool = False
    micro_batch_tokens: int | None = None

    def share(self, training: TrainingSpec) -> tuple[slice, int]:
        """Which rows of every batch this process trains, and how many of them in a forward pass.

        Raises:
            ConfigError: they are not as many for every process, or not whole sequences.
        """
        size, tokens = self.group.size, self.micro_batch_tokens
        if training.batch_size % size:
            raise ConfigError(
                f"a batch of {training.batch_size} sequences cannot be spread evenly over {size} processes; give a "
                "number that divides it"
            )
        if tokens is not None and tokens % training.context:
            raise ConfigError(f"micro-batches of {tokens} tokens do not hold whole sequences of {training.context}")
        at_once = training.micro_batch_size if tokens is None else tokens // training.context
        return self.group.rows(training.batch_size), min(at_once, training.batch_size // size)
