"""The spec of an example of a task as text."""

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
    """A test example of the figure's task as text, in pieces (lg Figure 8)."""

    table: ClassVar[Schema] = Schema(
        "sample",
        "one piece of one example; the texts of all pieces, one after the other, are the example",
        {
            "place": int,  # 0, 1, ...
            "piece": str,  # name of the piece in the task, such as needle
            "tokens": int,  # number of tokens
            "text": str,  # with the spaces before it
        },
        keys=("place", "piece"),
    )
    kind: Literal["sample"] = "sample"
    length: PositiveInt  # length of the example, in the unit of the task
    depth: Depth | None = None  # depth of the key in the text, from 0 to 1; without it, as the task draws it
    seed: int = 12  # chooses the example

    @model_validator(mode="after")
    def _spelled(self) -> Self:
        if self.task.spelled_by is None:
            raise ValueError(f"the tokens of '{self.task.name}' do not represent text")
        return self

    @classmethod
    def planned(cls, entry: Entry, models: tuple[ModelSpec, ...], data: Data | None, where: str) -> Self:
        planned = super().planned(entry, models, data, where)
        planned.example()
        return planned

    def canonical_content(self) -> Any:
        """The content with only the part of the task that makes this example."""
        return super().canonical_content() | {"task": self.example().canonical_content()}

    def example(self) -> Task:
        """The task with this length and depth.

        Raises:
            ConfigError: no example has this length and depth.
        """
        task = self.task.at(self.length)
        if self.depth is None:
            return task
        mix: list[Any] = [part.model_dump() | {"depths": (self.depth, self.depth)} for part in task.mix]
        return task.parse(task.model_dump() | {"mix": mix}, f"{task.name} at depth {self.depth:g}")
