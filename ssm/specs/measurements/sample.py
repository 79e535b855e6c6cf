"""An example of a task as text."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.data import Data
from ssm.specs.measurements.base import Entry, OfTask
from ssm.specs.model import ModelSpec
from ssm.specs.tasks.base import Task
from ssm.specs.tasks.passkey import Depth


class Sample(OfTask):
    """A test example of the figure's task, piece by piece, as the tokenizer spells its tokens (lg Figure 8)."""

    table: ClassVar[Schema] = Schema(
        "sample",
        "one piece of one example; the texts of all of them, one behind the other, are the example",
        {
            "place": int,  # 0, 1, ...
            "piece": str,  # what its task calls it, such as needle
            "tokens": int,  # in it
            "text": str,  # spaces in front of it and all
        },
        keys=("place", "piece"),
    )
    kind: Literal["sample"] = "sample"
    length: PositiveInt  # as the task counts it
    depth: Depth | None = None  # of a key; None: as the task draws it, or it hides none
    seed: int = 12  # which example

    @model_validator(mode="after")
    def _spelled(self) -> Self:
        if self.task.spelled_by is None:
            raise ValueError(f"the tokens of '{self.task.name}' stand for no text")
        return self

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        found = super().planned(entry, models, data, where)
        found.example()
        return found

    def canonical_content(self) -> Any:
        """The task as it makes this example: what else it mixes decides nothing."""
        return super().canonical_content() | {"task": self.example().canonical_content()}

    def example(self) -> Task:
        """The task at this length and depth alone.

        Raises:
            ConfigError: it has no such examples.
        """
        task = self.task.at(self.length)
        if self.depth is None:
            return task
        mix: list[Any] = [part.model_dump() | {"depths": (self.depth, self.depth)} for part in task.mix]
        return task.parse(task.model_dump() | {"mix": mix}, f"{task.name} at depth {self.depth:g}")
