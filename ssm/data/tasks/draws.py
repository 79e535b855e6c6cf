"""Random numbers for many examples at once, as a function of (seed, split, stream, index) only.

This is SplitMix64 (Steele, Lea & Flood 2014). Its n-th number is a mix of start + n * GAMMA and needs no earlier
numbers. Every example and stream has its own start, mixed from the index and a hash of seed, split and stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ssm.base.seeds import derived_seed

T = TypeVar("T")
GAMMA = 0x9E3779B97F4A7C15
FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK = 2**64 - 1
HALF = np.uint64(32)


class Draws:
    """The random numbers of (B,) examples of a split. Different splits get different numbers."""

    def __init__(self, seed: int, split: str, indices: np.ndarray):
        self.seed, self.split, self.indices = seed, split, np.asarray(indices).astype(np.uint64)

    def integers(self, stream: str, below: int | np.ndarray, count: int = 1) -> np.ndarray:
        """Whole numbers from 0 to `below` - 1, where `below` <= 2^32 is one bound or (B,): (B, count) int64."""
        bounds = np.asarray(below, np.uint64).reshape(-1, 1)  # (B, 1) or (1, 1)
        return (((self._words(stream, count) >> HALF) * bounds) >> HALF).astype(np.int64)

    def uniform(self, stream: str, count: int = 1) -> np.ndarray:
        """Numbers in [0, 1): (B, count) float64."""
        return (self._words(stream, count) >> np.uint64(11)) * 2.0**-53

    def chosen(self, stream: str, weights: np.ndarray, count: int) -> np.ndarray:
        """Draw `count` of n items without replacement, with probabilities proportional to their (n,) weights.

        Each item gets an exponential time with the rate of its weight, and the first `count` items are taken. The next
        item is always drawn from the remaining ones by their weights (Efraimidis & Spirakis 2006).

        Returns:
            (B, count) int64 indices of items, in the order in which they are drawn.
        """
        times = -np.log1p(-self.uniform(stream, len(weights))) / weights  # (B, n)
        first = np.argpartition(times, count - 1)[:, :count]
        order = np.argsort(np.take_along_axis(times, first, 1))
        items: np.ndarray = np.take_along_axis(first, order, 1)
        return items

    def generators(self, stream: str) -> list[RandomGenerator]:
        """A sequential generator for each example."""
        return [RandomGenerator(start) for start in self._starts(stream).tolist()]

    def _words(self, stream: str, count: int) -> np.ndarray:
        """(B, count) uint64."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        return _mixed(self._starts(stream)[:, None] + steps)

    def _starts(self, stream: str) -> np.ndarray:
        """(B,) uint64."""
        key = np.uint64(derived_seed(self.seed, f"task/{self.split}/{stream}"))
        return _mixed(_mixed(self.indices + np.uint64(GAMMA)) ^ key)


class RandomGenerator:
    """The same kind of random numbers for one example, one after another."""

    def __init__(self, start: int):
        self.state = start

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        self.state = (self.state + GAMMA) & MASK
        word = self.state
        for shift, factor in zip((30, 27), FACTORS, strict=True):
            word = ((word ^ (word >> shift)) * factor) & MASK
        return (((word ^ (word >> 31)) >> 32) * bound) >> 32

    def one_of(self, things: Sequence[T]) -> T:
        """One item, all equally likely."""
        return things[self.below(len(things))]

    def two_of(self, things: Sequence[T]) -> tuple[T, T]:
        """Two different items in random order."""
        first, second = self.below(len(things)), self.below(len(things) - 1)
        return things[first], things[second + (second >= first)]


def _mixed(words: np.ndarray) -> np.ndarray:
    """SplitMix64's mix of every word, with intended overflow."""
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
