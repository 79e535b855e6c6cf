"""Copying: $ string | string . and, packed as Jelassi et al. (2024) train, one behind another."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.specs.tasks.copy import CopyTask


class Copy(Generator):
    """All strings of all rows at once: every token is told by its place in the string that it belongs to."""

    spec: CopyTask

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
        string = np.cumsum(marks[:, :N], 1) - 1  # (B, N): to which of the strings a token belongs
        start, length, stop = (np.take_along_axis(x, string, 1) for x in (starts, lengths, stops))  # (B, N)
        within = place - start
        copied = within > length + 1  # behind the bar
        source = np.clip(place - (length + 1) * copied, 0, N - 1)  # where a letter stands first
        letters = np.take_along_axis(draws.integers("letters", A, N), source, 1)
        tokens = np.select(
            [within == 0, within == length + 1, within == 2 * length + 2, within > 2 * length + 2],
            [begin, bar, end, nothing],
            letters,
        )
        whole = stop <= N
        asked = copied & (within <= 2 * length + 2) & whole  # (B, N), of tokens
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
        )
