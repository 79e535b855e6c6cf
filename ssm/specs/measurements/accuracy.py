"""How much of its answers a model has right."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.base import Distinct, Name
from ssm.specs.config import Rehearsal
from ssm.specs.data import Data
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRun, Work
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

SIDE_BY_SIDE = 32  # examples that are read at once, at least


class Accuracy(OfRun):
    """Test examples of a task: the answer's tokens that are right under teacher forcing, and when the model writes it.

    A figure file names the task where it is not the one that the arm was trained on.
    """

    kind: Literal["accuracy"] = "accuracy"
    task: TaskSpec
    # As the task counts lengths, ascending: a test set each. None: one test set, as the task mixes its parts.
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None
    examples: PositiveInt = 128  # of each test set
    seed: int = 11  # which examples, together with the run's own seed

    @model_validator(mode="after")
    def _every_set_can_be_made(self) -> Self:
        if self.lengths is not None and list(self.lengths) != sorted(self.lengths):
            raise ValueError(f"lengths must ascend, got {list(self.lengths)}")
        try:
            self.sets()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def sets(self) -> tuple[Task, ...]:
        """The task of every test set."""
        if self.lengths is None:
            return (self.task.tested(),)
        return tuple(self.task.at(length) for length in self.lengths)

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

    def read(self, run: RunSpec) -> tuple[float, int]:
        sets = self.sets()
        return self.examples * sum(task.least_context for task in sets), max(task.least_context for task in sets)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """Reading, and writing a token at a time."""
        assert run is not None
        at_once = ceil(self.examples / SIDE_BY_SIDE)
        reading = super().work(run)
        return reading + tuple(
            Work(
                run.model,
                run.data.vocab_size,
                self.examples * task.longest_answer,
                task.least_context,
                passes=at_once * task.longest_answer,
                channels=task.channels,
            )
            for task in self.sets()
        )

    def capped(self, caps: Rehearsal, context: int) -> Self:
        """The lengths within the cap, and the shortest in any case: a prompt has a least length."""
        lengths = self.lengths and tuple(length for length in self.lengths if length <= caps.max_contexts * context)
        changed = {"lengths": self.lengths and (lengths or self.lengths[:1])}
        return self.model_copy(update=changed | {"examples": min(self.examples, caps.max_sequences)})
