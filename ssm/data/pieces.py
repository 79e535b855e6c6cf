"""Parts of a split as a split, and dividing a text into a training part and a held-out part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssm.base.seeds import numpy_generator
from ssm.data.store import TokenSplit


class Pieces(TokenSplit):
    """Pieces of a split, read one after the other. Every piece begins a document.

    Args:
        split: the original split.
        bounds: (P, 2) int64: piece p has the tokens [start, stop) of `split`, in rising order without overlap.
        name: for errors.
    """

    def __init__(self, split: TokenSplit, bounds: np.ndarray, name: str):
        starts, stops = bounds[bounds[:, 0] < bounds[:, 1]].T
        self.split, self.starts = split, starts
        self.ends = np.cumsum(stops - starts)  # (P,) end of each piece within the joined pieces
        self.begins = self.ends - (stops - starts)  # (P,) start of each piece within the joined pieces
        piece = np.searchsorted(starts, split.documents, "right") - 1
        inside = piece >= 0
        inside[inside] = split.documents[inside] < stops[piece[inside]]
        documents = split.documents[inside] + (self.begins - starts)[piece[inside]]
        super().__init__(name, (), np.union1d(self.begins, documents), split.vocab_size)
        self.n_tokens = int(self.ends[-1]) if len(self.ends) else 0

    def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """See `TokenSplit.rows`."""
        tokens = np.empty((len(starts), length), np.int64)
        for row, start in zip(tokens, starts.tolist(), strict=True):
            self.require_inside(start, length)
            filled, piece = 0, int(np.searchsorted(self.ends, start, "right"))
            while filled < length:
                at = start + filled
                part = min(length - filled, int(self.ends[piece]) - at)
                row[filled : filled + part] = self.split.read(int(self.starts[piece] - self.begins[piece]) + at, part)
                filled, piece = filled + part, piece + 1
        return tokens


@dataclass(frozen=True)
class Division:
    """The two parts of a split, and how it was divided."""

    train: TokenSplit
    held_out: TokenSplit
    documents: int  # number of documents with at least one token
    whole: int  # number of documents that are held out completely
    last: int  # tokens at the end of one more document that are held out
    gap: int  # tokens before these that belong to neither part


def divide(split: TokenSplit, tokens: int, gap: int, seed: int) -> Division:
    """Hold out `tokens` tokens of a split: whole documents if they are short, or else the last part of one.

    Documents are drawn at random, with probabilities proportional to their tokens, and held out as long as they fit.
    The first one that does not fit is still held out as a whole if it is short: it has at most half of `tokens`, and
    at most half of the split is then held out. A longer one is cut, so that exactly `tokens` tokens are held out.

    Args:
        tokens: 0 < tokens < all tokens of the split.
        gap: this many tokens before the cut belong to neither part. Text on both sides of a cut is similar, and a
            measured window should not begin with text that directly follows training text.
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
    first = stops.copy()  # (D,) start of the held-out part of each document
    first[order[:whole]] = starts[order[:whole]]
    trained = first.copy()  # (D,) end of the training part of each document
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
