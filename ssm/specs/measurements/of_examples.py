"""The base class for measurements on test examples of a task."""

from __future__ import annotations

from typing import Any, Self

from ssm.base.errors import ConfigError
from ssm.specs.base import Name, ReadCount
from ssm.specs.config import DryRun
from ssm.specs.data import Data
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRun, require_unseen
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

HELPER = True


class OfExamples(OfRun):
    """A measurement on test examples of the arm's task, or of a task that the figure file names."""

    task: TaskSpec  # name of the task in data.yaml; default: the task of the arm's training
    examples: ReadCount  # number of test examples
    seed: int  # chooses the examples, together with the seed of the run

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        return super().entry_fields() | {"task": (Name | None, None)}

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        given = entry.given()
        name = given.pop("task", None)
        task, own = arm.run.data if name is None else arm.data(name), arm.run.data
        if not isinstance(task, Task):
            raise ConfigError(f"{where}: task: '{task.name}' is a text; name a task of data.yaml")
        same_size = (task.vocab_size, task.channels) == (own.vocab_size, own.channels)
        if not same_size or not task.is_spelled_like(own):
            raise ConfigError(f"{where}: task: '{task.name}' has other tokens than '{own.name}', which the run reads")
        if task.text is not None:
            require_unseen(task.text, arm.run, f"{where}: task")
        planned = cls.parse_for(given | {"task": task}, arm, where)
        task.require_tests(planned.examples, where)
        return planned

    def data(self, run: RunSpec) -> Data:
        return self.task

    def capped(self, caps: DryRun, context: int) -> Self:
        return self.model_copy(update={"examples": min(self.examples, caps.max_sequences)})
