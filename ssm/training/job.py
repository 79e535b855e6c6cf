"""What all parts of training know about the current run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.distributed import ProcessGroup


@dataclass(frozen=True)
class Job:
    """One run, trained by one or several processes.

    Attributes:
        parent: folder of the run whose weights it starts from.
        group: the processes that train it.
        origin: fingerprint of its inputs beyond the spec (`ssm.training.lineage`).
        parameters: number of parameters of the whole model.
    """

    run: RunSpec
    folder: Path
    parent: Path | None
    device: torch.device
    group: ProcessGroup
    origin: str
    parameters: int

    @property
    def training(self) -> TrainingSpec:
        return self.run.training

    @cached_property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.training.budget.optimizer_steps(self.training.batch_tokens, self.parameters)
