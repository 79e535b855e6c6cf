"""Parts of a split as a split of their own, and the part of a text that is held out of training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssm.base.seeds import numpy_generator
from ssm.data.store import TokenSplit


class Pieces(TokenSplit):
    """Pieces of a split, read one behind the other.

    A piece begins a document, whether or not it starts where one does.

    Args:
        split: the split that they are pieces of.
        bounds: (P, 2) int64: piece p has the tokens [start, stop) of `split`. They rise, and none overlap.
        name: for errors.
    """

    def __init__(self, split: TokenSplit, bounds: np.ndarray, name: str):
        starts, stops = bounds[bounds[:, 0] < bounds[:, 1]].T
        self.split, self.starts = split, starts
        self.ends = np.cumsum(stops - starts)  # (P,) where each piece ends among all of them
        self.begins = self.ends - (stops - starts)  # (P,) where each begins
        piece = np.searchsorted(starts, split.documents, "right") - 1
        inside = piece >= 0
        inside[inside] = split.documents[inside] < stops[piece[inside]]
        documents = split.documents[inside] + (self.begins - starts)[piece[inside]]
        super().__init__(name, (), np.union1d(self.begins, documents), split.vocab_size)
        self.n_tokens = int(self.ends[-1]) if len(self.ends) else 0

    def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """As of a whole split."""
        tokens = np.empty((len(starts), length), np.int64)
        for row, start in zip(tokens, starts.tolist(), strict=True):
            if start < 0 or start + length > self.n_tokens:
                raise IndexError(f"{self.name}: tokens {start} to {start + length} of {self.n_tokens}")
            filled, piece = 0, int(np.searchsorted(self.ends, start, "right"))
            while filled < length:
                at = start + filled
                part = min(length - filled, int(self.ends[piece]) - at)
                row[filled : filled + part] = self.split.read(int(self.starts[piece] - self.begins[piece]) + at, part)
                filled, piece = filled + part, piece + 1
        return tokens


@dataclass(frozen=True)
class Division:
    """A split in two, and how it was divided."""

    train: TokenSplit
    held_out: TokenSplit
    documents: int  # all that have a token
    whole: int  # of these, how many are held out whole
    last: int  # tokens that are held out of the end of one more document
    gap: int  # tokens before these that neither part has


def divide(split: TokenSplit, tokens: int, gap: int, seed: int) -> Division:
    """Hold `tokens` tokens of a split out: whole documents where they are short, or else the last part of one.

    Documents are drawn at random, each with a chance that is proportional to its tokens, and held out whole as long as
    they fit. The first that does not fit is held out whole all the same if it is short: at most half of `tokens`, and
    no more than half of the split is held out with it. If it is longer, it is cut by place: its last part is held out,
    so that exactly `tokens` tokens are.

    Args:
        tokens: 0 < tokens < all of them.
        gap: so many tokens before the cut neither train nor are held out: text on both sides of a cut is alike, and a
            window that is measured begins with text that no training has just read.
        seed: of the draw.
    """
    starts = split.documents[np.diff(split.documents, append=split.n_tokens) > 0]  # (D,)
    sizes = np.diff(starts, append=split.n_tokens)
    order = np.argsort(numpy_generator(seed, "divide").exponential(size=len(sizes)) / sizes)
    fitting = np.cumsum(sizes[order])
    whole = int(np.searchsorted(fitting, tokens, "right"))
    held = int(fitting[whole - 1]) if whole else 0
    last = tokens - held
    if last:
        size = int(sizes[order[whole]])
        if size <= tokens // 2 and held + size <= split.n_tokens // 2:
            whole, last = whole + 1, 0
    stops = starts + sizes  # (D,)
    first = stops.copy()  # (D,) where what is held out of each begins
    first[order[:whole]] = starts[order[:whole]]
    trained = first.copy()  # (D,) where what trains ends
    if last:
        cut = order[whole]
        first[cut] -= last
        trained[cut] = max(starts[cut], first[cut] - gap)
        gap = int(first[cut] - trained[cut])
    return Division(
        train=Pieces(split, np.stack([starts, trained], 1), f"{split.name} (training part)"),
        held_out=Pieces(split, np.stack([first, stops], 1), f"{split.name} (held-out part)"),
        documents=len(sizes),
        whole=whole,
        last=last,
        gap=gap if last else 0,
    )
