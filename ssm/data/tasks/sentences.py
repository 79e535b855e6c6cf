"""Sentences of a token store's text, between which a task inserts its own."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ssm.base.errors import DataError
from ssm.data.store import TokenSplit
from ssm.data.tokenizers import Tokenizer

STOPS = (".", "!", "?")
AT_ONCE = 1024  # smallest number of tokens per read
ROUNDS = 1000  # limit for reads without a sentence


class Sentences:
    """The sentences of a split in order. After its end the split continues with its beginning.

    A sentence ends with a line, or with a full stop, an exclamation or question mark before a space.

    Args:
        split: the text.
        tokenizer: of its tokens.
        least: shorter sentences, in tokens, are skipped.

    Raises:
        DataError: the split is empty.
    """

    def __init__(self, split: TokenSplit, tokenizer: Tokenizer, least: int):
        if not split.n_tokens:
            raise DataError(f"{split.name}: the text is empty, but the task needs its sentences")
        self.split, self.least = split, least
        self.line, self.stop, self.space = _marks(tokenizer, split.vocab_size)

    def take(self, position: int, length: int) -> list[np.ndarray]:
        """Sentences after `position` with `length` tokens in total; the last one is cut. (n_i,) int64 each."""
        taken = self._whole(position, length)
        surplus = sum(map(len, taken)) - length
        return [*taken[:-1], taken[-1][: len(taken[-1]) - surplus]] if surplus > 0 else taken

    def ending(self, position: int, length: int) -> list[np.ndarray]:
        """The same for `length` >= 1, but the first sentences are cut, so that the last one is complete."""
        taken = self._whole(position, length)
        surplus = sum(map(len, taken)) - length
        while surplus >= len(taken[0]):
            surplus -= len(taken.pop(0))
        return [taken[0][surplus:], *taken[1:]]

    def _whole(self, position: int, length: int) -> list[np.ndarray]:
        """Sentences with at least `length` tokens in total."""
        taken: list[np.ndarray] = []
        missing, rest, begun = length, np.empty(0, np.int64), False
        for _ in range(ROUNDS + length):
            if missing <= 0:
                break
            size = min(2 * missing + AT_ONCE, self.split.n_tokens)
            position %= self.split.n_tokens
            tokens = np.concatenate([rest, self.split.read(position, min(size, self.split.n_tokens - position))])
            position += len(tokens) - len(rest)
            ends = self._ends(tokens)  # positions after a sentence's last token
            if not begun:  # the position may be inside a sentence
                if not len(ends):
                    continue
                tokens, ends, begun = tokens[ends[0] :], ends[1:] - ends[0], True
            pieces = np.split(tokens, ends)
            rest = pieces.pop()
            for piece in pieces:
                if len(piece) >= self.least and missing > 0:
                    taken.append(piece)
                    missing -= len(piece)
        if missing > 0:
            raise DataError(f"{self.split.name}: too few sentences of at least {self.least} tokens")
        return taken

    def _ends(self, tokens: np.ndarray) -> np.ndarray:
        ends = self.line[tokens]
        ends[:-1] |= self.stop[tokens[:-1]] & self.space[tokens[1:]]
        return np.nonzero(ends)[0] + 1


@lru_cache(2)
def _marks(tokenizer: Tokenizer, vocab_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tokens end a line, end with a stop, or begin with a space: (V,) bool each. Slow for a large vocabulary."""
    pieces = [tokenizer.decode(np.array([token])) for token in range(vocab_size)]
    line, stop = ["\n" in piece for piece in pieces], [piece.endswith(STOPS) for piece in pieces]
    return np.array(line), np.array(stop), np.array([piece[:1].isspace() for piece in pieces])
