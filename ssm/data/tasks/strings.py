"""What tasks of strings share: $ string | answer . and, packed as Jelassi et al. (2024) train, one behind another."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.data.tasks.draws import Draws
from ssm.specs.tasks.strings import StringTask


@dataclass(frozen=True)
class StringLayout:
    """Where every token of every row stands, (B, N) int64 each."""

    string: np.ndarray  # to which of the row's strings it belongs
    start: np.ndarray  # where that string's $ stands
    length: np.ndarray  # letters of that string, n
    within: np.ndarray  # its place behind the $: letters at 1 ... n, the bar at n + 1, the answer at n + 2 ... 2 n + 1


class Strings(Generator):
    """All strings of all rows at once: every token is told by its place in the string that it belongs to."""

    spec: StringTask

    def letters(self, draws: Draws, at: StringLayout) -> np.ndarray:
        """The letter of every token that is one of a string, anything at the others: (B, N) int64."""
        return draws.integers("letters", self.spec.alphabet, at.within.shape[1])

    @abstractmethod
    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        """Of every token of an answer the place where its letter is read, anything at the others: (B, N) int64."""

    def make(self, indices: np.ndarray) -> Examples:
        spec, draws = self.spec, self.draws(indices)
        B, N, A = len(indices), spec.tokens, spec.alphabet
        begin, bar, end, nothing = range(A, A + 4)
        shortest, longest = np.array([(part.shortest, part.longest) for part in spec.mix])[self.parts(draws)].T  # (B,)
        most = 1 if spec.packed is None else -(-N // (2 * min(part.shortest for part in spec.mix) + 3))  # K strings
        lengths = shortest[:, None] + draws.integers("lengths", longest - shortest + 1, most)  # (B, K)
        stops = np.cumsum(2 * lengths + 3, 1)  # (B, K), behind the full stop
        starts = stops - (2 * lengths + 3)

        place = np.arange(N)  # (N,)
        marks = np.zeros((B, N + 1), np.int64)
        np.put_along_axis(marks, np.minimum(starts, N), 1, 1)
        string = np.cumsum(marks[:, :N], 1) - 1  # (B, N)
        start, length, stop = (np.take_along_axis(x, string, 1) for x in (starts, lengths, stops))  # (B, N)
        within = place - start
        at = StringLayout(string, start, length, within)
        answered = within > length + 1  # behind the bar
        letters = self.letters(draws, at)
        source = np.where(answered, self.source(letters, at), place).clip(0, N - 1)
        tokens = spec.first + np.select(
            [within == 0, within == length + 1, within == 2 * length + 2, within > 2 * length + 2],
            [begin, bar, end, nothing],
            np.take_along_axis(letters, source, 1),
        )
        whole = stop <= N
        asked = answered & (within <= 2 * length + 2) & whole  # (B, N), of tokens
        rows, numbers = np.nonzero(stops <= N)
        bars = (starts + lengths + 1)[rows, numbers]  # the bar is the input that the first letter follows
        return Examples(
            tokens,
            asked[:, 1:],
            Answers(
                example=rows,
                start=bars,
                stop=bars + lengths[rows, numbers],
                length=lengths[rows, numbers],
                group=np.zeros(len(rows), np.int64),
                difficulty=np.full(len(rows), np.nan),
            ),
            sources=source[:, 1:],
        )
