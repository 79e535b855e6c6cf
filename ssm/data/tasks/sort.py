"""Sorting: $ letters | the same letters, ascending ."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.draws import Draws
from ssm.data.tasks.strings import StringLayout, Strings
from ssm.specs.tasks.sort import SortTask


class Sort(Strings, kind="sort"):
    """The answer has the letters in order of their numbers. A string has no letter twice."""

    spec: SortTask

    def letters(self, draws: Draws, at: StringLayout) -> np.ndarray:
        even, longest = np.ones(self.spec.alphabet), self.spec.longest_answer
        strings = [draws.chosen(f"letters/{number}", even, longest) for number in range(int(at.string.max()) + 1)]
        there = at.string * longest + (at.within - 1).clip(0, longest - 1)  # (B, N)
        chosen: np.ndarray = np.take_along_axis(np.concatenate(strings, 1), there, 1)
        return chosen

    def source(self, letters: np.ndarray, at: StringLayout) -> np.ndarray:
        """Sort each string as $, letters, other tokens: then the k-th smallest letter is at position k after the $."""
        A = self.spec.alphabet
        behind = np.where(at.within > at.length, A + 1, letters + 1)
        key = at.string * (A + 2) + np.where(at.within == 0, 0, behind)  # (B, N)
        order = key.argsort(1, kind="stable")
        rank = at.within - (at.length + 1)
        places: np.ndarray = np.take_along_axis(order, (at.start + rank).clip(0, order.shape[1] - 1), 1)
        return places
