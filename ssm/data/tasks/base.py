"""The base class of task generators, and their examples as batches and test sets. Nothing is stored on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssm.base.discovery import RegistryError, file_of
from ssm.base.plugin_modules import Modules
from ssm.data.batches import IGNORE_INDEX
from ssm.data.store import TokenSplit, TokenStore
from ssm.data.tasks.draws import Draws
from ssm.data.tokenizers import token_dtype
from ssm.specs.tasks import SPECS
from ssm.specs.tasks.base import Split

GENERATORS: Modules[type[Generator]] = Modules("ssm.data.tasks", SPECS)

AT_ONCE = 2**18  # tokens of a test set that are made together


@dataclass(frozen=True)
class Answers:
    """The answers of some examples, one after another in order of example and position."""

    example: np.ndarray  # (A,) int64: index of the example
    start: np.ndarray  # (A,) position of its first scored target
    stop: np.ndarray  # (A,) position after its last scored target
    length: np.ndarray  # (A,) its length, as the spec defines it
    group: np.ndarray  # (A,) index of its group in the spec
    difficulty: np.ndarray  # (A,) float64: its difficulty, as the spec defines it; NaN: none
    # (A, K, M) tokens of K wrong answers to compare with, padded with IGNORE_INDEX; None: there are none
    alternatives: np.ndarray | None = None


@dataclass(frozen=True)
class Examples:
    """Some examples. Shorter ones are padded; the padding does not count and has no meaning."""

    tokens: np.ndarray  # (B, N + 1) int64: inputs and the last target
    target_mask: np.ndarray  # (B, N) bool: which targets count
    answers: Answers
    labels: np.ndarray | None = None  # (B, N) int64: the targets, if they are not the next tokens
    # (B, N, C + 1) float32: the inputs, if they are values (`ssm.models.backbone.ValueEmbedding`). `tokens` then only
    # provides the targets. None: inputs are tokens.
    values: np.ndarray | None = None
    # (B, N) int64: for the target of an answer, the position of the input that holds it. None: unknown.
    sources: np.ndarray | None = None

    @property
    def inputs(self) -> np.ndarray:
        """(B, N), or (B, N, C + 1) for values."""
        return self.tokens[:, :-1] if self.values is None else self.values

    @property
    def following(self) -> np.ndarray:
        """All targets, also those that do not count: (B, N)."""
        return self.tokens[:, 1:] if self.labels is None else self.labels

    @property
    def targets(self) -> np.ndarray:
        """(B, N), IGNORE_INDEX where a target does not count."""
        return np.where(self.target_mask, self.following, IGNORE_INDEX)


def prompts_with_answers(
    prompts: Sequence[np.ndarray], answers: Sequence[np.ndarray], width: int, **columns: Any
) -> Examples:
    """Examples of one prompt and its answer each, padded with zeros to `width` tokens.

    Args:
        prompts: (n_i,) tokens each.
        answers: (m_i,) tokens each; all of them count and are scored.
        columns: the other columns of `Answers`.
    """
    starts = np.array([len(prompt) - 1 for prompt in prompts])  # the prompt's last token, whose target is the answer
    stops = starts + [len(answer) for answer in answers]
    tokens = np.zeros((len(prompts), width), np.int64)
    for row, stop, parts in zip(tokens, stops, zip(prompts, answers, strict=True), strict=True):
        row[: stop + 1] = np.concatenate(parts)
    position = np.arange(width - 1)
    target_mask = (position >= starts[:, None]) & (position < stops[:, None])
    return Examples(tokens, target_mask, Answers(example=np.arange(len(prompts)), start=starts, stop=stops, **columns))


class Generator(ABC):
    """The examples of a task in one split, as a function of (spec, seed, split, index).

    The splits use different random streams. Text comes from training documents for training examples, and from held-out
    documents for test examples.

    Args:
        spec: of the task.
        split: train or test.
        seed: of the examples.
        store: the task's own, or the store of a text with the same tokens.
    """

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # None: a base class
            GENERATORS.add(kind, cls)

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        self.spec, self.split, self.seed, self.store = spec, split, seed, store
        shares = np.array([part.share for part in spec.mix])
        self.borders = np.cumsum(shares / shares.sum())[:-1]

    @abstractmethod
    def make(self, indices: np.ndarray) -> Examples:
        """The examples of (B,) indices. Each one depends only on its own index."""

    def checked(self, indices: np.ndarray) -> Examples:
        """The examples of (B,) indices, compared with the spec.

        Raises:
            RegistryError: the generator's file, and what differs.
        """
        made = self.make(indices)
        if (problem := _problem(made, self.spec)) is not None:
            raise RegistryError(f"{file_of(type(self).__module__)}: {problem}")
        return made

    def pieces(self, index: int) -> list[tuple[str, np.ndarray]]:
        """The parts of an example in order: names, and (n_i,) tokens. By default prompts and answers."""
        made = self.checked(np.array([index]))
        size = int(made.target_mask[0].nonzero()[0][-1]) + 2  # tokens up to the last one that counts
        # (size,): whether a token belongs to an answer
        answer = np.concatenate([[False], made.target_mask[0, : size - 1]])
        parts = np.split(made.tokens[0, :size], np.flatnonzero(np.diff(answer)) + 1)
        return [("answer" if number % 2 else "prompt", part) for number, part in enumerate(parts)]

    @property
    def text(self) -> TokenSplit:
        """The text for examples of this split."""
        return self.store.train if self.split == "train" else self.store.held_out

    def draws(self, indices: np.ndarray) -> Draws:
        return Draws(self.seed, self.split, indices)

    def parts(self, draws: Draws) -> np.ndarray:
        """Each example's part of the mix: (B,) int64."""
        return np.searchsorted(self.borders, draws.uniform("part")[:, 0], side="right")


def _problem(made: Examples, spec: Any) -> str | None:
    """What differs between examples and the spec of their task."""
    (B, N), longest, last = made.target_mask.shape, spec.least_context, spec.vocab_size - 1
    if made.tokens.shape != (B, N + 1):
        return f"tokens have the shape {made.tokens.shape}, expected {(B, N + 1)} as target_mask has {(B, N)}"
    if longest < N:
        return f"examples have {N} inputs, the spec has at most {longest}"
    if not made.target_mask.any():
        return "no target counts"
    if made.answers.group.max() >= len(spec.groups):
        return f"an answer of group {made.answers.group.max()}, the spec has {len(spec.groups)}"
    tokens = {"token": made.tokens} if made.values is None else {}
    for name, numbers in (tokens | {"target": made.following[made.target_mask]}).items():
        if not np.issubdtype(numbers.dtype, np.integer):
            return f"a {name} is {numbers.dtype}, expected an integer"
        for number in (numbers.min(), numbers.max()):
            if not 0 <= number <= last:
                return f"{name} {number}, expected 0 to {last}"
    return None


class TestSet:
    """The first examples of a generator, as sequences that are read in segments.

    Only the examples that are being read are in memory, in the small token type of a store.
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

        The targets include those that do not count, and are 0 after an example's end. Inputs that are values are
        (rows, stop - start, C + 1) float32.
        """
        if not np.array_equal(rows, self.rows):
            self.rows = rows
            self.tokens, self.following, self.values = self._made(rows)
        read = _cut(self.tokens, start, stop) if self.values is None else torch.from_numpy(self.values[:, start:stop])
        return read, _cut(self.following, start, stop)

    def answers(self) -> Answers:
        """The answers of all examples."""
        parts = [self.generator.checked(rows).answers for rows in self._few(np.arange(self.count))]
        names = [name for name, column in vars(parts[0]).items() if column is not None]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        sizes = [len(rows) for rows in self._few(np.arange(self.count))]
        before = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(part.example) for part in parts])
        return Answers(**columns | {"example": columns["example"] + before})

    def _made(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(rows, N + 1) tokens; (rows, N) targets, a view of the tokens if they are the next tokens; and values."""
        dtype = token_dtype(self.generator.spec.vocab_size)
        tokens, labels, values = [], [], []
        for few in self._few(rows):
            made = self.generator.checked(few)
            tokens.append(made.tokens.astype(dtype))
            if made.labels is not None:
                labels.append(made.labels.astype(dtype))
            if made.values is not None:
                values.append(made.values)
        together = _joined(tokens)
        following = _joined(labels) if labels else together[:, 1:]
        return together, following, np.concatenate(values) if values else None

    def _few(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows in groups that are made together."""
        at_once = max(1, AT_ONCE // (self.generator.spec.least_context + 1))
        return np.split(rows, range(at_once, len(rows), at_once))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Stack rows (b_i, n_i), padded with zeros."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _cut(tokens: np.ndarray, start: int, stop: int) -> Tensor:
    """Columns [start, stop) as int64, padded with zeros."""
    part = tokens[:, start:stop].astype(np.int64)
    return torch.from_numpy(np.pad(part, ((0, 0), (0, stop - start - part.shape[1]))))
