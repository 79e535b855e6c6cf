"""What the generators of all tasks share: examples as batches, as test sets, and as nothing that is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ssm.base.plugin_modules import Modules
from ssm.data.batches import NOT_ASKED
from ssm.data.store import TokenSplit, TokenStore
from ssm.data.tasks.draws import Draws
from ssm.data.tokenizers import token_dtype
from ssm.specs.tasks import SPECS

GENERATORS: Modules[type[Generator]] = Modules("ssm.data.tasks", SPECS)

Split = Literal["train", "test"]
AT_ONCE = 2**18  # tokens of a test set that are made at once


@dataclass(frozen=True)
class Answers:
    """The answers of some examples, one after the other; those of an example in the order in which they stand."""

    example: np.ndarray  # (A,) int64: in which of the examples
    start: np.ndarray  # (A,) the place of its first target that is scored
    stop: np.ndarray  # (A,) behind the last
    length: np.ndarray  # (A,) what the spec calls its length
    group: np.ndarray  # (A,) the number of its group among the spec's
    difficulty: np.ndarray  # (A,) float64: what the spec calls its difficulty; NaN: there is none
    # (A, K, M) tokens of K wrong answers that each is compared with, NOT_ASKED behind their ends; None: there are none
    alternatives: np.ndarray | None = None


@dataclass(frozen=True)
class Examples:
    """Some examples; what is behind the end of a shorter one is not asked and has no meaning."""

    tokens: np.ndarray  # (B, N + 1) int64: inputs and the last target
    asked: np.ndarray  # (B, N) bool: which targets count
    answers: Answers
    labels: np.ndarray | None = None  # (B, N) int64: the targets, where they are not the tokens that follow
    # (B, N, C + 1) float32: what is read where inputs are values (`ssm.models.backbone.ValueEmbedding`); then tokens
    # are there for the targets alone. None: tokens are read.
    values: np.ndarray | None = None
    # (B, N) int64: of every answer's target the place of the input that holds it. None: not told.
    sources: np.ndarray | None = None

    @property
    def inputs(self) -> np.ndarray:
        """(B, N), or of values (B, N, C + 1)."""
        return self.tokens[:, :-1] if self.values is None else self.values

    @property
    def following(self) -> np.ndarray:
        """(B, N): the targets, asked for or not."""
        return self.tokens[:, 1:] if self.labels is None else self.labels

    @property
    def targets(self) -> np.ndarray:
        """(B, N), NOT_ASKED where they do not count."""
        return np.where(self.asked, self.following, NOT_ASKED)


class Generator(ABC):
    """The examples of a task in one split: a function of (spec, seed, split, index).

    Training and test examples are drawn from generators of different names, and what they take from a text from its
    training documents or the held-out ones.

    Args:
        spec: the task's.
        split: train, or test.
        seed: which examples.
        store: the task's own, or that of a text in the same tokens.
    """

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # else it is what several share
            GENERATORS.add(kind, cls)

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        self.spec, self.split, self.seed, self.store = spec, split, seed, store
        shares = np.array([part.share for part in spec.mix])
        self.borders = np.cumsum(shares / shares.sum())[:-1]

    @abstractmethod
    def make(self, indices: np.ndarray) -> Examples:
        """The examples of (B,) indices, each whatever the others are."""

    def pieces(self, index: int) -> list[tuple[str, np.ndarray]]:
        """What an example is made of, in its order: names, and (n_i,) tokens. Here what is given, and what is asked."""
        made = self.make(np.array([index]))
        size = int(made.asked[0].nonzero()[0][-1]) + 2  # tokens up to the last that counts
        answer = np.concatenate([[False], made.asked[0, : size - 1]])  # (size,): whether a token is one of an answer
        parts = np.split(made.tokens[0, :size], np.flatnonzero(np.diff(answer)) + 1)
        return [("answer" if number % 2 else "prompt", part) for number, part in enumerate(parts)]

    @property
    def text(self) -> TokenSplit:
        """The text that examples of this split may use."""
        return self.store.train if self.split == "train" else self.store.held_out

    def draws(self, indices: np.ndarray) -> Draws:
        return Draws(self.seed, self.split, indices)

    def parts(self, draws: Draws) -> np.ndarray:
        """Which part of the mix each example is of: (B,) int64."""
        return np.searchsorted(self.borders, draws.uniform("part")[:, 0], side="right")


class TestSet:
    """The first examples of a generator, as sequences that are read a segment at a time.

    Of the examples that are being read the tokens are held, as small as they are in a store, and nothing else.
    """

    __test__ = False  # for pytest

    def __init__(self, generator: Generator, count: int):
        self.generator, self.count = generator, count
        self.rows, self.tokens, self.following = np.empty(0, np.int64), np.empty((0, 0)), np.empty((0, 0))
        self.values: np.ndarray | None = None

    def __len__(self) -> int:
        return self.count

    def read(self, rows: np.ndarray, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [start, stop) of some examples: two (rows, stop - start) int64 tensors.

        Targets are there asked for or not; zeros behind an example's end. Inputs that are values are
        (rows, stop - start, C + 1) float32.
        """
        if not np.array_equal(rows, self.rows):
            self.rows = rows
            self.tokens, self.following, self.values = self._made(rows)
        read = _cut(self.tokens, start, stop) if self.values is None else torch.from_numpy(self.values[:, start:stop])
        return read, _cut(self.following, start, stop)

    def answers(self) -> Answers:
        """The answers of all examples."""
        parts = [self.generator.make(rows).answers for rows in self._few(np.arange(self.count))]
        there = [name for name, column in vars(parts[0]).items() if column is not None]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in there}
        sizes = [len(rows) for rows in self._few(np.arange(self.count))]
        before = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(part.example) for part in parts])
        return Answers(**columns | {"example": columns["example"] + before})

    def _made(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(rows, N + 1) tokens, (rows, N) targets, a view of them where they are the tokens that follow, and values."""
        dtype = token_dtype(self.generator.spec.vocab_size)
        tokens, labels, values = [], [], []
        for few in self._few(rows):
            made = self.generator.make(few)
            tokens.append(made.tokens.astype(dtype))
            if made.labels is not None:
                labels.append(made.labels.astype(dtype))
            if made.values is not None:
                values.append(made.values)
        together = _joined(tokens)
        following = _joined(labels) if labels else together[:, 1:]
        return together, following, np.concatenate(values) if values else None

    def _few(self, rows: np.ndarray) -> list[np.ndarray]:
        """As many at a time as are worth making at once."""
        at_once = max(1, AT_ONCE // (self.generator.spec.least_context + 1))
        return np.split(rows, range(at_once, len(rows), at_once))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """(b_i, n_i) rows below one another, zeros behind the shorter ones."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _cut(tokens: np.ndarray, start: int, stop: int) -> Tensor:
    """Columns [start, stop) as int64, zeros behind the last one."""
    part = tokens[:, start:stop].astype(np.int64)
    return torch.from_numpy(np.pad(part, ((0, 0), (0, stop - start - part.shape[1]))))
