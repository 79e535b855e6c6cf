"""A seeded order of very many items: a pseudo-random permutation without a table."""

from __future__ import annotations

from math import isqrt

import numpy as np

ROUNDS = 6
ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # multipliers that mix 64 bits
HALF = np.uint64(32)


class Permutation:
    """A random permutation of 0 ... n-1, in constant memory and constant time per element.

    It is a Feistel network over the cells (x, y) of a rectangle with slightly more than n cells. An image outside n is
    permuted again until it is inside (Black & Rogaway 2002, "Ciphers with arbitrary finite domains", methods 2 and 3).
    """

    def __init__(self, n: int, generator: np.random.Generator):
        self.n = n
        self.width = isqrt(n - 1) + 1
        self.height = -(-n // self.width)
        self.keys = generator.integers(0, 2**64, size=ROUNDS, dtype=np.uint64)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """The images of (k,) indices below n: (k,) int64."""
        images = self._feistel(indices)
        outside = images >= self.n
        while outside.any():
            images[outside] = self._feistel(images[outside])
            outside = images >= self.n
        return images

    def _feistel(self, indices: np.ndarray) -> np.ndarray:
        y, x = np.divmod(indices.astype(np.uint64), np.uint64(self.width))
        for number, key in enumerate(self.keys):
            if number % 2:
                y = (y + _mixed(x, key)) % np.uint64(self.height)
            else:
                x = (x + _mixed(y, key)) % np.uint64(self.width)
        return (y * np.uint64(self.width) + x).astype(np.int64)


def _mixed(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """32 well-mixed bits of each value, small enough that adding a coordinate cannot overflow."""
    for multiplier in ODD:
        values = (values ^ key) * multiplier
        values = values ^ (values >> HALF)
    return values >> HALF
