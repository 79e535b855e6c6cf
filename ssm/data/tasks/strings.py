"""Base class of string tasks: $ string | answer . They may be packed one after another (Jelassi et al. 2024)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.data.tasks.draws import Draws
from ssm.specs.tasks.strings import StringTask


@dataclass(frozen=True)
class StringLayout:
    """The string to which each token belongs, and its position there: (B, N) int64 each."""

    string: np.ndarray  # index of the string in the row
    start: np.ndarray  # position of the string's $
    length: np.ndarray  # n: letters of the string
    within: np.ndarray  # position after the $: letters at 1 ... n, the bar at n + 1, the answer at n + 2 ... 2 n + 1


class Strings(Generator):
    """Makes all strings of all rows together, from each token's position in its string."""

    spec: StringTask

    def letters(self, draws: Draws, at: StringLayout) -> np.ndarray:
        """The letter of every token of a string; arbitrary for other tokens: (B, N) int64."""
        return draws.integers("letters", self.spec.alphabet, at.within.shape[1])

    @abstractmethod
    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        """For every token of an answer, the position of its letter; arbitrary for other tokens: (B, N) int64."""

    def make(self, indices: np.ndarray) -> Examples:
        spec, draws = self.spec, self.draws(indices)
        B, N, A = len(indices), spec.tokens, spec.alphabet
        begin, bar, end, nothing = range(A, A + 4)
        shortest, longest = np.array([(part.shortest, part.longest) for part in spec.mix])[self.parts(draws)].T  # (B,)
        most = 1 if spec.packed is None else -(-N // (2 * min(part.shortest for part in spec.mix) + 3))  # K strings
        lengths = shortest[:, None] + draws.integers("lengths", longest - shortest + 1, most)  # (B, K)
        stops = np.cumsum(2 * lengths + 3, 1)  # (B, K), after the full stop
        starts = stops - (2 * lengths + 3)

        place = np.arange(N)  # (N,)
        marks = np.zeros((B, N + 1), np.int64)
        np.put_along_axis(marks, np.minimum(starts, N), 1, 1)
        string = np.cumsum(marks[:, :N], 1) - 1  # (B, N)
        start, length, stop = (np.take_along_axis(x, string, 1) for x in (starts, lengths, stops))  # (B, N)
        within = place - start
        at = StringLayout(string, start, length, within)
        answered = within > length + 1  # after the bar
        letters = self.letters(draws, at)
        source = np.where(answered, self.source(letters, at), place).clip(0, N - 1)
        tokens = spec.first + np.select(
            [within == 0, within == length + 1, within == 2 * length + 2, within > 2 * length + 2],
            [begin, bar, end, nothing],
            np.take_along_axis(letters, source, 1),
        )
        whole = stop <= N
        target_mask = answered & (within <= 2 * length + 2) & whole  # (B, N), for tokens
        rows, numbers = np.nonzero(stops <= N)
        bars = (starts + lengths + 1)[rows, numbers]  # the bar is the input before the first letter
        return Examples(
            tokens,
            target_mask[:, 1:],
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
