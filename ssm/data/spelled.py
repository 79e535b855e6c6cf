"""The number of text bytes that tokens represent. It makes losses comparable between tokenizers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ssm.data.store import TokenSplit
from ssm.data.tokenizers import UNKNOWN, Tokenizer

AROUND = 8  # tokens to read on each side: a character has at most four bytes, and a token at least one


def spelled_bytes(split: TokenSplit, tokenizer: Tokenizer, starts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Bytes in UTF-8 of the text that the targets in each bin of positions represent.

    The target at position p of a window is its token p + 1. A character whose tokens lie in two bins counts for the bin
    in which it ends, so that neighboring bins add up to their common text. (A U+FFFD in the text itself counts for the
    bin in which it begins.)

    Args:
        split: the text.
        tokenizer: of its tokens.
        starts: (B,) positions of windows in the split.
        edges: (bins + 1,) rising positions: a bin is [edge, next edge).

    Returns:
        (B, bins) int64.
    """
    if tokenizer.json is None:  # a token is a byte
        return np.tile(np.diff(edges), (len(starts), 1))
    return np.array([_of_window(split, tokenizer, int(start), edges) for start in starts], np.int64)


def _of_window(split: TokenSplit, tokenizer: Tokenizer, start: int, edges: np.ndarray) -> list[int]:
    first = max(0, start + 1 + int(edges[0]) - AROUND)
    last = min(split.n_tokens, start + 1 + int(edges[-1]) + AROUND)
    tokens, places = split.read(first, last - first), start + 1 + edges - first
    counts = []
    for begin, end in pairwise(places.tolist()):
        before = max(0, begin - AROUND)  # decoders may treat the first token of a text differently
        counts.append(_whole(tokenizer, tokens, before, end) - _whole(tokenizer, tokens, before, begin))
    return counts


def _whole(tokenizer: Tokenizer, tokens: np.ndarray, start: int, stop: int) -> int:
    """Bytes of the characters that end within tokens [start, stop)."""
    text = tokenizer.decode(tokens[start:stop])
    if text.endswith(UNKNOWN):  # perhaps a character that continues
        longer = tokenizer.decode(tokens[start : stop + AROUND])
        while not longer.startswith(text):
            text = text[:-1]
    return len(text.encode())
