"""The batches of training: windows or streams of a text, or examples of a task."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from ssm.base.seeds import numpy_generator
from ssm.data.batches import ALL, IGNORE_INDEX, Batch, StreamBatches, WindowBatches
from ssm.data.order import Permutation
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Generator
from ssm.specs.tasks.base import Task


class Batches(Protocol):
    """Batches as a function of their step only."""

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it. Only these rows are read."""


def training_batches(store: TokenStore, context: int, batch_size: int, stream: bool, seed: int) -> Batches:
    """The batches of a run.

    Args:
        store: the token store of a text or a task.
        context: T.
        batch_size: B.
        stream: row b of a batch continues row b of the last batch. Examples of a task continue only the state.
        seed: of the data order.

    Raises:
        DataError: the text is shorter than one window.
    """
    data = store.spec
    if isinstance(data, Task):
        return TaskBatches(build_generator(data, "train", seed, store), context, batch_size, stream)
    return (StreamBatches if stream else WindowBatches)(store.train, context, batch_size, seed)


class TaskBatches:
    """Examples one after another. A finite set is read in epochs, each in a new order.

    An example that is shorter than T is filled with zeros that have no targets.

    Args:
        generator: makes the examples.
        context: T.
        batch_size: B.
        starts: mark the first input of every sequence as a start.
    """

    def __init__(self, generator: Generator, context: int, batch_size: int, starts: bool):
        self.generator, self.context, self.batch_size, self.starts = generator, context, batch_size, starts
        self._epoch: tuple[int, Permutation] | None = None

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it. Only these rows are made."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size)[rows]
        examples = self.generator.checked(self.indices(numbers))
        width = examples.target_mask.shape[1]
        given = examples.inputs
        inputs = np.zeros((len(numbers), self.context, *given.shape[2:]), given.dtype)  # (B, T) or (B, T, C + 1)
        targets = np.full((len(numbers), self.context), IGNORE_INDEX)
        inputs[:, :width], targets[:, :width] = given, examples.targets
        starts = None
        if self.starts:
            starts = torch.zeros(len(numbers), self.context, dtype=torch.bool)
            starts[:, 0] = True
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), starts, answers=True)

    def indices(self, numbers: np.ndarray) -> np.ndarray:
        """(n,) indices of the examples at positions `numbers` of the run, which count from 0."""
        count = self.generator.spec.examples
        if count is None:
            return numbers
        indices = np.empty_like(numbers)
        for epoch in np.unique(numbers // count).tolist():
            mine = numbers // count == epoch
            indices[mine] = self._order(epoch, count)(numbers[mine] % count)
        return indices

    def _order(self, epoch: int, count: int) -> Permutation:
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, Permutation(count, numpy_generator(self.generator.seed, "examples", epoch))
        return self._epoch[1]
