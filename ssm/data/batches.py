"""Batches: which tokens of a text a training step and an evaluation see, as a function of (seed, step) alone.

Nothing is remembered between two batches, so a resumed run sees what an uninterrupted one would have seen, and two
runs of one seed see the same text whatever else differs between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ssm.base.errors import DataError
from ssm.base.seeds import numpy_generator
from ssm.data.order import Permutation
from ssm.data.store import TokenSplit

ALL = slice(None)
NOT_ASKED = -100  # a target that does not count; torch's own mark
BLOCK = 1024  # windows whose places in the shuffled order are computed at once


@dataclass(frozen=True)
class Batch:
    """Sequences and what follows each of their tokens; int64 on the CPU, but for values."""

    inputs: torch.Tensor  # (B, T); where they are values and no tokens (B, T, C + 1) float32
    targets: torch.Tensor  # (B, T): the token after each input; of answers NOT_ASKED where they do not count
    starts: torch.Tensor | None = None  # (B, T) bool: inputs before which a carried state is reset; None: not tracked
    answers: bool = False  # targets are answers to what was asked, and some of them do not count

    @property
    def asked(self) -> int:
        """How many targets count."""
        return int((self.targets != NOT_ASKED).sum()) if self.answers else self.targets.numel()


class WindowBatches:
    """Windows of T inputs in shuffled order; every epoch is a new order over every window once.

    The windows of an epoch lie end to end (the last target of one is the first input of the next) from an offset below
    T that changes with the epoch, so that no token is always a window's first.

    Args:
        split: where the tokens are.
        context: T.
        batch_size: B.
        seed: the data order's.

    Raises:
        DataError: the split is shorter than one window.
    """

    def __init__(self, split: TokenSplit, context: int, batch_size: int, seed: int):
        _require(split, context, "context")
        self.split, self.context, self.batch_size, self.seed = split, context, batch_size, seed
        self.windows = max(1, (split.n_tokens - context) // context)  # an epoch: fits behind any offset below T
        self._epoch: tuple[int, int, Permutation] | None = None  # (epoch, offset, order): made anew for each epoch
        self._block: tuple[int, int, np.ndarray] | None = None  # (epoch, block, positions), likewise

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it; no others are read."""
        return _batch(self.split.rows(self.positions(step)[rows], self.context + 1))

    def positions(self, step: int) -> np.ndarray:
        """(B,) positions of the windows' first tokens at `step`."""
        first = step * self.batch_size
        positions = np.empty(self.batch_size, np.int64)
        filled = 0
        while filled < self.batch_size:  # once, but for a batch that reaches into the next block or epoch
            epoch, index = divmod(first + filled, self.windows)
            block, within = divmod(index, BLOCK)
            part = self._positions(epoch, block)[within : within + self.batch_size - filled]
            positions[filled : filled + len(part)] = part
            filled += len(part)
        return positions

    def _positions(self, epoch: int, block: int) -> np.ndarray:
        """(BLOCK,) positions of the windows of one block of an epoch, fewer in its last."""
        if self._block is None or self._block[:2] != (epoch, block):
            offset, order = self._order(epoch)
            indices = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.windows))
            self._block = (epoch, block, offset + self.context * order(indices))
        return self._block[2]

    def _order(self, epoch: int) -> tuple[int, Permutation]:
        if self._epoch is None or self._epoch[0] != epoch:
            generator = numpy_generator(self.seed, "data", epoch)
            slack = self.split.n_tokens - self.windows * self.context  # offsets at which the last target still exists
            offset = int(generator.integers(min(self.context, slack)))
            self._epoch = (epoch, offset, Permutation(self.windows, generator))
        return self._epoch[1:]


class StreamBatches:
    """Consecutive chunks of B streams, for truncated backpropagation through time (lg Section 4.5).

    The split is read as a ring: stream b starts at its own place, evenly spread from a random first one and shuffled,
    and step s holds its tokens [s T, (s + 1) T). After n / (B T) steps all streams together have read the whole split.
    `starts` marks the first token of every document; the split's own first token is one, so a state is reset too
    where a stream passes the split's end.

    Args and errors: as `WindowBatches`.
    """

    def __init__(self, split: TokenSplit, context: int, batch_size: int, seed: int):
        _require(split, context, "context")
        self.split, self.context, self.batch_size, self.seed = split, context, batch_size, seed
        generator = numpy_generator(seed, "data")
        places = generator.permutation(batch_size) * split.n_tokens // batch_size
        self.origins = (places + generator.integers(split.n_tokens)) % split.n_tokens  # (B,)

    def batch(self, step: int, rows: slice = ALL) -> Batch:
        """The batch of `step` >= 0, or some rows of it: row b continues row b of the step before."""
        positions = (self.origins[rows] + step * self.context) % self.split.n_tokens
        n, length = self.split.n_tokens, self.context + 1
        starts = np.empty((len(positions), self.context), bool)
        tokens = self.split.rows(np.minimum(positions, n - length), length)
        for row, position in enumerate(positions.tolist()):
            rest = position + length - n  # of the chunk's T + 1 tokens, those past the split's end
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
    """Long evaluation sequences, read a segment at a time."""

    split: TokenSplit
    positions: np.ndarray  # (sequences,): where each starts in the split
    length: int  # inputs in each; one more token follows as the last target

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
        """The window that each of some sequences has at each of some positions: (B,), (S,) -> (B, S)."""
        return np.repeat(rows[:, None], len(positions), axis=1)


@dataclass(frozen=True)
class ShuffledWindows(HeldOutWindows):
    """The same windows with their chunks exchanged: sequence r holds at its chunk j that of window (r + j) mod N.

    Every chunk of every window is read once, behind as much text as it has before it in its own window. Of a window,
    N chunks lie from one to the next in a sequence, so that what lies between is other text. The windows lie anywhere,
    in no order: their turn needs no other seed.
    """

    chunk: int  # tokens; the last of a window may be shorter

    def read(self, rows: slice | np.ndarray, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = np.arange(len(self))[rows]  # (B,)
        borders = [start, *range((start // self.chunk + 1) * self.chunk, stop, self.chunk), stop]
        read = super().read
        parts = [read((numbers + first // self.chunk) % len(self), first, last) for first, last in pairwise(borders)]
        inputs, targets = zip(*parts, strict=True)
        return torch.cat(inputs, 1), torch.cat(targets, 1)

    def windows_at(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        found: np.ndarray = (rows[:, None] + positions // self.chunk) % len(self)
        return found


def held_out_windows(split: TokenSplit, sequences: int, length: int, seed: int) -> HeldOutWindows:
    """Evaluation sequences of `length` inputs at seeded positions, each uniform over all places where it fits.

    The first sequences of a larger set are those of a smaller one.

    Raises:
        DataError: the split is shorter than `length` + 1 tokens.
    """
    _require(split, length, "length")
    positions = numpy_generator(seed, "held_out_windows").integers(split.n_tokens - length, size=sequences)
    return HeldOutWindows(split, positions, length)


def _batch(tokens: np.ndarray, starts: np.ndarray | None = None) -> Batch:
    """Inputs and targets of (B, T + 1) tokens, contiguous each."""
    whole = torch.from_numpy(tokens)
    return Batch(
        whole[:, :-1].contiguous(),
        whole[:, 1:].contiguous(),
        None if starts is None else torch.from_numpy(starts),
    )


def _require(split: TokenSplit, length: int, what: str) -> None:
    if split.n_tokens < length + 1:
        raise DataError(
            f"{split.name}: {split.n_tokens} tokens, {what} {length} needs {length + 1}; "
            f"give a larger corpus, or a {what} of at most {max(split.n_tokens - 1, 0)}"
        )
