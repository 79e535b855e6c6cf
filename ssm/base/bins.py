"""Bins of positions: four bins in each octave, and bins of one position below 8."""

from __future__ import annotations

import numpy as np


def bin_edges(length: int) -> np.ndarray:
    """Edges 0, 1, ..., 8, 10, 12, 14, 16, 20, ... up to `length`, (bins + 1,) int64.

    Each power of two from 4 on is an edge, and so are three quarters of it. So [3/4 kT, kT) is a union of bins.
    """
    edges = list(range(min(length, 8) + 1))
    start = 8
    while start < length:
        edges += [edge for edge in (start + start * part // 4 for part in (1, 2, 3, 4)) if edge < length]
        start *= 2
    return np.array(sorted({*edges, length}), dtype=np.int64)
