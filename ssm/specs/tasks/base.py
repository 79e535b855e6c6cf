"""What the specs of all tasks share: which examples there are, and what is asked of them.

An example is a sequence with one answer or several. It is a function of (spec, seed, split, index): nothing is stored,
and example ten million is made as fast as the first. Whoever asks (ssm/plan, ssm/training) knows no task by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, PositiveFloat, PositiveInt

from ssm.base.discovery import Registry
from ssm.specs.base import Spec
from ssm.specs.data import Data, DataSpec, TokenizerSpec

KEY = "task"  # by which config files name one
SPECS: Registry[type[Task]] = Registry("ssm.specs.tasks")  # those that stand in this folder

P = TypeVar("P")
Mix = Annotated[tuple[P, ...], Field(strict=False, min_length=1)]


class Part(Spec, ABC):
    """Examples of one sort: so long, so difficult. A task mixes parts by their shares."""

    share: PositiveFloat = 1.0  # of the examples, relative to the other parts' shares

    @abstractmethod
    def at(self, length: int) -> Self:
        """The same sort at one length alone, in whatever the task's lengths count."""


class Task(Data):
    """Sequences in which some targets are answers: the loss is on these alone."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name"})
    task: str
    mix: Mix[Part]
    examples: PositiveInt | None = None  # a finite set of so many, in epochs; None: every training example is new

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls, KEY)

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The names of the groups that answers belong to."""

    @property
    @abstractmethod
    def longest_answer(self) -> int:
        """Tokens of the longest answer, about."""

    @property
    def candidates(self) -> int:
        """Answers that are read behind every prompt and compared: the right one and its alternatives; 0: none are."""
        return 0

    def answering(self, room: int) -> int:
        """Tokens behind a prompt: an answer of `room` tokens is written, and as long candidates are read."""
        return (1 + self.candidates) * room

    def tested(self) -> Self:
        """The task as test sets are made of it: one example a sequence."""
        return self

    def at(self, length: int) -> Self:
        """Its test set at one length alone.

        Raises:
            ConfigError: no example is of this length.
        """
        tested = self.tested()
        content = tested.model_dump() | {"mix": [part.at(length).model_dump() for part in self.mix]}
        return self.parse(content, f"{self.name} at length {length}")

    @property
    def spelled_by(self) -> TokenizerSpec | None:
        return None

    @property
    def text(self) -> DataSpec | None:
        return None

    @property
    def answers(self) -> bool:
        return True

    @property
    def words(self) -> str:
        return f"task {self.task}, vocabulary {self.vocab_size:,}"

    def capped(self, max_documents: int) -> Self:
        return self
