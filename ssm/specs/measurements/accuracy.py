"""How much of its answers a model has right."""

from __future__ import annotations

from math import ceil
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.base.schema import Schema
from ssm.specs.base import Distinct, ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import Work
from ssm.specs.measurements.of_examples import OfExamples
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

SIDE_BY_SIDE = 32  # examples that are read at once, at least


class Accuracy(OfExamples):
    """Tokens of the answers that are right under teacher forcing, and when the model writes the answer itself."""

    table: ClassVar[Schema] = Schema(
        "accuracy",
        "one answer of one test example, read behind the right tokens (forced) and written by the model (generated)",
        {
            "length": int,  # of the example, as its task counts it
            "group": str,  # of questions, as its task names it
            "example": int,  # 0, 1, ...
            "answer": int,  # 0, 1, ... of those in the example
            "difficulty": float,  # the depth of a key, the sentences of a story; null: the task has no such number
            "tokens": int,  # of the answer, those that are scored
            "forced_share": float,  # of them, those that are the most probable ones after the right ones before
            "forced_all": bool,
            "generated_share": float,  # of them, those that greedy decoding puts in their places
            "generated_all": bool,
            # Log-likelihood of the answer less that of the likeliest wrong one that the task holds it against, nats
            "margin": float,
            "preferred": bool,  # it is above zero
        },
        keys=("length", "group", "example", "answer", "difficulty"),
        sample="example",
        optional=frozenset({"margin", "preferred"}),  # of tasks that have such alternatives
    )
    kind: Literal["accuracy"] = "accuracy"
    # As the task counts lengths, ascending: a test set each. None: one test set, as the task mixes its parts.
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None
    examples: ReadCount = 128  # of each test set
    seed: int = 11

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

    def read(self, run: RunSpec) -> tuple[float, int]:
        sets = self.sets()
        return self.examples * sum(task.least_context for task in sets), max(task.least_context for task in sets)

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        """Reading, then writing a token at a time, and reading the answers that are compared."""
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
            )
            for task in self.sets()
        )

    def capped(self, caps: DryRun, context: int) -> Self:
        """The lengths within the cap, and the shortest in any case: a prompt has a least length."""
        lengths = self.lengths and tuple(length for length in self.lengths if length <= caps.max_contexts * context)
        changed = {"lengths": self.lengths and (lengths or self.lengths[:1])}
        return self.model_copy(update=changed | {"examples": min(self.examples, caps.max_sequences)})
