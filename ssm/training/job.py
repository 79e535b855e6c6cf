"""What every part of training knows of the run at hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.distributed import ProcessGroup


@dataclass(frozen=True)
class Job:
    """One run in one process, or in one of several.

    Attributes:
        parent: the folder of the run whose weights it starts from.
        group: the processes that train it, and which of them this one is.
        origin: what it is made from, beyond its spec (`ssm.training.lineage`).
        parameters: of the whole model.
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
