"""Batches: the tokens of a text that a training step or an evaluation reads, as a function of (seed, step) only.

No state is kept between batches. A resumed run therefore reads the same batches, and two runs with one seed read the
same text, whatever else differs between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ssm.base.errors import DataError
from ssm.base.seeds import numpy_generator
from ssm.data.order import Permutation
from ssm.data.store import TokenSplit, TokenStore
from ssm.specs.windows import LongestWindows

ALL = slice(None)
IGNORE_INDEX = -100  # marks a target that does not count; the `ignore_index` of torch
BLOCK = 1024  # windows whose shuffled positions are computed together


@dataclass(frozen=True)
class Batch:
    """Sequences and their targets, on the CPU. Tokens are int64."""

    inputs: torch.Tensor  # (B, T), or (B, T, C + 1) float32 if inputs are values instead of tokens
    targets: torch.Tensor  # (B, T): the token after each input; IGNORE_INDEX if it is not part of a task's answer
    starts: torch.Tensor | None = None  # (B, T) bool: reset a carried state before this input; None: not tracked
    answers: bool = False  # the targets are answers of a task, and only some of them count

    @property
    def target_count(self) -> int:
        """Number of targets that count."""
        return int((self.targets != IGNORE_INDEX).sum()) if self.answers else self.targets.numel()


class WindowBatches:
    """Windows of T inputs in shuffled order. Every epoch reads each window once, in a new order.

    The windows of an epoch lie end to end: the last target of one is the first input of the next. The first window
    starts at an offset below T that changes with the epoch, so that no token is always the first one of a window.

    Args:
        split: the tokens.
        context: T.
        batch_size: B.
        seed: of the data order.

    Raises:
        DataError: the split is shorter than one window.
    """

    def __init__(self, split: TokenSplit, context: int, batch_size: int, seed: int):
        _require(split, context, "context")
        self.split, self.context, self.batch_size, self.seed = split, context, batch_size, seed
        self.windows = max(1, (split.n_tokens - context) // context)  # per epoch: fits after any offset below T
        self._epoch: tuple[int, int, Permutation] | None = None  # (epoch, offset, order) of the last batch
        self._block: tuple[int, int, np.ndarray] | None = None  # (epoch, block, positions) of the last batch

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it. Only these rows are read."""
        return _batch(self.split.rows(self.positions(step)[rows], self.context + 1))

    def positions(self, step: int) -> np.ndarray:
        """(B,) positions of the windows' first tokens at `step`."""
        first = step * self.batch_size
        positions = np.empty(self.batch_size, np.int64)
        filled = 0
        while filled < self.batch_size:  # more than once only if the batch reaches into the next block or epoch
            epoch, index = divmod(first + filled, self.windows)
            block, within = divmod(index, BLOCK)
            part = self._positions(epoch, block)[within : within + self.batch_size - filled]
            positions[filled : filled + len(part)] = part
            filled += len(part)
        return positions

    def _positions(self, epoch: int, block: int) -> np.ndarray:
        """Positions of the windows of one block of an epoch: (BLOCK,), fewer in the last block."""
        if self._block is None or self._block[:2] != (epoch, block):
            offset, order = self._order(epoch)
            indices = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.windows))
            self._block = (epoch, block, offset + self.context * order(indices))
        return self._block[2]

    def _order(self, epoch: int) -> tuple[int, Permutation]:
        if self._epoch is None or self._epoch[0] != epoch:
            generator = numpy_generator(self.seed, "data", epoch)
            slack = self.split.n_tokens - self.windows * self.context  # number of offsets that leave the last target
            offset = int(generator.integers(min(self.context, slack)))
            self._epoch = (epoch, offset, Permutation(self.windows, generator))
        return self._epoch[1:]


class StreamBatches:
    """Consecutive chunks of B streams, for truncated backpropagation through time (lg Section 4.5).

    The split is read as a ring. Streams start at evenly spread positions, from a random first one, in shuffled order.
    Step s holds a stream's tokens [s T, (s + 1) T). After n / (B T) steps the streams together have read the whole
    split. `starts` marks the first token of every document. This includes the first token of the split, so a state is
    also reset when a stream passes the split's end.

    Args and errors: as for `WindowBatches`.
    """

    def __init__(self, split: TokenSplit, context: int, batch_size: int, seed: int):
        _require(split, context, "context")
        self.split, self.context, self.batch_size, self.seed = split, context, batch_size, seed
        generator = numpy_generator(seed, "data")
        places = generator.permutation(batch_size) * split.n_tokens // batch_size
        self.origins = (places + generator.integers(split.n_tokens)) % split.n_tokens  # (B,)

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it. Row b continues row b of the last step."""
        positions = (self.origins[rows] + step * self.context) % self.split.n_tokens
        n, length = self.split.n_tokens, self.context + 1
        starts = np.empty((len(positions), self.context), bool)
        tokens = self.split.rows(np.minimum(positions, n - length), length)
        for row, position in enumerate(positions.tolist()):
            rest = position + length - n  # number of the chunk's T + 1 tokens beyond the split's end
            if rest <= 0:
                starts[row] = self.split.document_starts(position, self.context)
                continue
            tokens[row, -rest:] = self.split.read(0, rest)
            tokens[row, :-rest] = self.split.read(position, length - rest)
            marks = self.split.document_starts(position, length - rest), self.split.document_starts(0, rest - 1)
            starts[row] = np.concatenate(marks)
        return _batch(tokens, starts)


@dataclass(frozen=True)
class HeldOutWindows:
    """Long evaluation sequences that are read in segments."""

    split: TokenSplit
    positions: np.ndarray  # (sequences,): start of each sequence in the split
    length: int  # inputs in each sequence; one more token follows as the last target

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, rows: slice | np.ndarray, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets [start, stop) of some sequences: two (rows, stop - start) int64 tensors.

        Only these tokens are read, so memory does not grow with `length`.

        Raises:
            IndexError: the segment is not inside the sequences.
        """
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"segment [{start}, {stop}) of sequences of {self.length} tokens")
        batch = _batch(self.split.rows(self.positions[rows] + start, stop - start + 1))
        return batch.inputs, batch.targets

    def windows_at(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The windows that some sequences contain at some positions: (B,), (S,) -> (B, S)."""
        return np.repeat(rows[:, None], len(positions), axis=1)


@dataclass(frozen=True)
class ShuffledWindows(HeldOutWindows):
    """The same windows with exchanged chunks: chunk j of sequence r is chunk j of window (r + j) mod N.

    Every chunk of every window is read once, after as much text as precedes it in its own window. Between two chunks of
    one window lie N - 1 chunks of other windows. Windows already have random positions, so this needs no further seed.
    """

    chunk: int  # tokens; the last chunk of a window may be shorter

    def read(self, rows: slice | np.ndarray, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = np.arange(len(self))[rows]  # (B,)
        borders = [start, *range((start // self.chunk + 1) * self.chunk, stop, self.chunk), stop]
        read = super().read
        parts = [read((numbers + first // self.chunk) % len(self), first, last) for first, last in pairwise(borders)]
        inputs, targets = zip(*parts, strict=True)
        return torch.cat(inputs, 1), torch.cat(targets, 1)

    def windows_at(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        windows: np.ndarray = (rows[:, None] + positions // self.chunk) % len(self)
        return windows


def held_out_windows(split: TokenSplit, sequences: int, length: int, seed: int) -> HeldOutWindows:
    """Evaluation sequences of `length` inputs at seeded positions, uniform over all positions where they fit.

    A smaller set is the beginning of a larger one with the same seed.

    Raises:
        DataError: the split is shorter than `length` + 1 tokens.
    """
    _require(split, length, "length")
    positions = numpy_generator(seed, "held_out_windows").integers(split.n_tokens - length, size=sequences)
    return HeldOutWindows(split, positions, length)


def require_windows(store: TokenStore, longest: LongestWindows) -> None:
    """Check that the longest windows fit into the splits of a store.

    Raises:
        DataError: a split is shorter than its longest window and one more token, the last target.
    """
    windows = ("held_out", store.held_out, longest.held_out), ("choice", store.choice, longest.choice)
    for share, split, window in windows:
        if window.length:
            try:
                _require(split, window.length, "length", share)
            except DataError as error:
                raise DataError(f"{window.reader} would fail after training: {error}") from None


def _batch(tokens: np.ndarray, starts: np.ndarray | None = None) -> Batch:
    """Contiguous inputs and targets from (B, T + 1) tokens."""
    whole = torch.from_numpy(tokens)
    return Batch(
        whole[:, :-1].contiguous(),
        whole[:, 1:].contiguous(),
        None if starts is None else torch.from_numpy(starts),
    )


def _require(split: TokenSplit, length: int, what: str, share: str = "held_out") -> None:
    if split.n_tokens < length + 1:
        most = f", or a {what} of at most {split.n_tokens - 1}" if split.n_tokens > 1 else ""
        raise DataError(
            f"{split.name}: {split.n_tokens} tokens, {what} {length} needs {length + 1}; "
            f"give a larger corpus, another '{share}' share{most}"
        )
