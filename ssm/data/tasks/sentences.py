"""Sentences of a token store's text, to hide something between them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ssm.base.errors import DataError
from ssm.data.store import TokenSplit
from ssm.data.tokenizers import Tokenizer

STOPS = (".", "!", "?")
AT_ONCE = 1024  # tokens that are read at least
ROUNDS = 1000  # readings without a sentence


class Sentences:
    """The sentences of a split as they follow each other, its end by its beginning.

    A sentence ends with a line, or with a full stop, an exclamation or question mark before a space.

    Args:
        split: the text.
        tokenizer: of its tokens.
        least: tokens of a sentence; shorter ones are passed over.

    Raises:
        DataError: the split is empty.
    """

    def __init__(self, split: TokenSplit, tokenizer: Tokenizer, least: int):
        if not split.n_tokens:
            raise DataError(f"{split.name}: no text to hide anything in")
        self.split, self.least = split, least
        self.line, self.stop, self.space = _marks(tokenizer, split.vocab_size)

    def take(self, position: int, length: int) -> list[np.ndarray]:
        """Sentences behind `position`, the last cut so that they have `length` tokens together: (n_i,) int64 each."""
        taken = self._whole(position, length)
        surplus = sum(map(len, taken)) - length
        return [*taken[:-1], taken[-1][: len(taken[-1]) - surplus]] if surplus > 0 else taken

    def ending(self, position: int, length: int) -> list[np.ndarray]:
        """The same, 1 token or more, with the first ones cut: they end with a whole sentence."""
        taken = self._whole(position, length)
        surplus = sum(map(len, taken)) - length
        while surplus >= len(taken[0]):
            surplus -= len(taken.pop(0))
        return [taken[0][surplus:], *taken[1:]]

    def _whole(self, position: int, length: int) -> list[np.ndarray]:
        """As many sentences as have `length` tokens or more."""
        taken: list[np.ndarray] = []
        missing, rest, begun = length, np.empty(0, np.int64), False
        for _ in range(ROUNDS + length):
            if missing <= 0:
                break
            size = min(2 * missing + AT_ONCE, self.split.n_tokens)
            position %= self.split.n_tokens
            tokens = np.concatenate([rest, self.split.read(position, min(size, self.split.n_tokens - position))])
            position += len(tokens) - len(rest)
            ends = self._ends(tokens)  # places behind a sentence's last token
            if not begun:  # somewhere inside a sentence
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
            raise DataError(f"{self.split.name}: too few sentences of {self.least} tokens or more")
        return taken

    def _ends(self, tokens: np.ndarray) -> np.ndarray:
        ends = self.line[tokens]
        ends[:-1] |= self.stop[tokens[:-1]] & self.space[tokens[1:]]
        return np.nonzero(ends)[0] + 1


@lru_cache(2)
def _marks(tokenizer: Tokenizer, vocab_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tokens end a line, end with a stop, begin with a space: (V,) bool each. Of a large vocabulary seconds."""
    pieces = [tokenizer.decode(np.array([token])) for token in range(vocab_size)]
    line, stop = ["\n" in piece for piece in pieces], [piece.endswith(STOPS) for piece in pieces]
    return np.array(line), np.array(stop), np.array([piece[:1].isspace() for piece in pieces])
