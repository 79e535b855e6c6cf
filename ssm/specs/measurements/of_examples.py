"""What the specs of measurements on test examples of a task share: which task, and which examples."""

from __future__ import annotations

from typing import Any, Self

from ssm.base.errors import ConfigError
from ssm.specs.base import Name, ReadCount
from ssm.specs.data import Data
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRun
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

HELPER = True


class OfExamples(OfRun):
    """Made on test examples: a figure file names the task where it is not the one that the arm was trained on."""

    task: TaskSpec  # in a figure file its name in data.yaml; None: the task that the arm was trained on
    examples: ReadCount  # of the test set
    seed: int  # which examples, together with the run's own seed

    @classmethod
    def entry_fields(cls) -> dict[str, Any]:
        return super().entry_fields() | {"task": (Name | None, None)}

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        given = entry.given()
        name = given.pop("task", None)
        task, own = arm.run.data if name is None else arm.data(name), arm.run.data
        if not isinstance(task, Task):
            raise ConfigError(f"{where}: task: '{task.name}' is a text, which asks nothing; name a task of data.yaml")
        alike = (task.vocab_size, task.channels) == (own.vocab_size, own.channels)
        if not alike or (own.spelled_by and task.spelled_by not in (None, own.spelled_by)):
            raise ConfigError(f"{where}: task: '{task.name}' is in other tokens than the run's '{own.name}'")
        return cls.parse(given | {"task": task}, where)

    def data(self, run: RunSpec) -> Data:
        return self.task
