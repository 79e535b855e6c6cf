"""The base class for specs of tasks.

An example is a sequence with one or more answers. It is a function of (spec, seed, split, index). So nothing is stored,
and example ten million is made as fast as the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, PositiveFloat, PositiveInt

from ssm.base.discovery import Registry
from ssm.specs.base import PluginSpec, Spec
from ssm.specs.data import Data, DataSpec, TokenizerSpec

KEY = "task"  # key of the task's name in config files
SPECS: Registry[type[Task]] = Registry("ssm.specs.tasks")

Split = Literal["train", "test"]
P = TypeVar("P")
Mix = Annotated[tuple[P, ...], Field(strict=False, min_length=1)]


class Part(Spec, ABC):
    """Examples with the same lengths and difficulty."""

    share: PositiveFloat = 1.0  # weight of this part in the mix

    @abstractmethod
    def at(self, length: int) -> Self:
        """The same part with examples of one length, in the unit of the task."""


class Task(Data, PluginSpec):
    """Sequences in which some targets are answers. Only these have a loss."""

    registry: ClassVar[Registry[Any]] = SPECS
    registry_key: ClassVar[str] = KEY
    not_hashed: ClassVar[frozenset[str]] = frozenset({"name"})
    answers: ClassVar[bool] = True
    task: str
    mix: Mix[Part]  # parts with different lengths or difficulty, from which examples are drawn
    examples: PositiveInt | None = None  # size of the training set, read in epochs; without it, each example is new

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of answers."""

    @property
    @abstractmethod
    def longest_answer(self) -> int:
        """Approximate number of tokens of the longest answer."""

    @property
    def candidates(self) -> int:
        """Number of answers to compare after each prompt, the right one included; 0: none are compared."""
        return 0

    def answering(self, room: int) -> int:
        """Tokens after a prompt: an answer of `room` tokens is written, and candidates of this length are read."""
        return (1 + self.candidates) * room

    def tested(self) -> Self:
        """The task of test sets, with one example in each sequence."""
        return self

    def at(self, length: int) -> Self:
        """The task of a test set with one length.

        Raises:
            ConfigError: no example has this length.
        """
        one_length = self.model_copy(update={"mix": tuple(part.at(length) for part in self.mix)})
        return self.parse(one_length.tested().model_dump(), f"{self.name} at length {length}")

    def require_tests(self, examples: int, where: str) -> None:
        """Check that a test set of this size can be made.

        Raises:
            ConfigError: there are fewer test examples; the message begins with `where`.
        """
        return None  # most tasks make as many as needed

    @property
    def spelled_by(self) -> TokenizerSpec | None:
        return None

    @property
    def text(self) -> DataSpec | None:
        return None

    @property
    def words(self) -> str:
        return f"task {self.task}, vocabulary {self.vocab_size:,}"

    def capped(self, max_documents: int) -> Self:
        return self
