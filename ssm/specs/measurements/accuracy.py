"""The spec of the accuracy of answers."""

from __future__ import annotations

from math import ceil
from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from ssm.base.errors import ConfigError
from ssm.base.schema import Schema
from ssm.specs.base import Ascending, PositiveInts, ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import Work
from ssm.specs.measurements.of_examples import OfExamples
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

SIDE_BY_SIDE = 32  # minimum number of examples in a batch


class Accuracy(OfExamples):
    """How many tokens of the answers are right, under teacher forcing and in greedy decoding."""

    table: ClassVar[Schema] = Schema(
        "accuracy",
        "one answer of one test example, under teacher forcing (forced) and in greedy decoding (generated)",
        {
            "length": int,  # of the example, in the unit of the task
            "group": str,  # of answers, as the task names it
            "example": int,  # 0, 1, ...
            "answer": int,  # 0, 1, ... within the example
            "difficulty": float,  # depth of a key, sentences of a story; null: the task does not define it
            "tokens": int,  # of the answer that are scored
            "forced_share": float,  # fraction of these tokens that are the most probable after the right tokens before
            "forced_all": bool,
            "generated_share": float,  # fraction of these tokens that greedy decoding writes
            "generated_all": bool,
            # Log-likelihood of the answer minus that of the most likely wrong alternative, nats
            "margin": float,
            "preferred": bool,  # whether the margin is positive
        },
        keys=("length", "group", "example", "answer", "difficulty"),
        sample="example",
        optional=frozenset({"margin", "preferred"}),  # for tasks with alternatives
    )
    from_outside: ClassVar[bool] = True
    kind: Literal["accuracy"] = "accuracy"
    # Lengths of the test sets, in the unit of the task, in ascending order. Without it, there is one test set, with the
    # task's own mix.
    lengths: Annotated[PositiveInts, Ascending] | None = None
    examples: ReadCount = 128  # number of examples in each test set
    seed: int = 11

    @model_validator(mode="after")
    def _test_sets_exist(self) -> Self:
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

    def read(self, run: RunSpec) -> tuple[float, int]:
        sets = self.sets()
        return self.examples * sum(task.least_context for task in sets), max(task.least_context for task in sets)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """Reading, decoding token by token, and reading the alternatives."""
        assert run is not None
        at_once = ceil(self.examples / SIDE_BY_SIDE)
        reading = super().work(run)
        return reading + tuple(
            Work(
                run.own_model,
                run.data.vocab_size,
                self.examples * task.answering(task.longest_answer),
                task.least_context,
                passes=at_once * (task.longest_answer + task.candidates),
                channels=task.channels,
                continued=self.examples * (task.longest_answer + task.candidates),
            )
            for task in self.sets()
        )

    def capped(self, caps: DryRun, context: int) -> Self:
        """Keep the lengths within the cap, and always the shortest, because prompts have a minimum length."""
        lengths = self.lengths and tuple(length for length in self.lengths if length <= caps.max_contexts * context)
        fewer = {"lengths": self.lengths and (lengths or self.lengths[:1])}
        return super().capped(caps, context).model_copy(update=fewer)
