"""Decays per key between the tokens of a chunk, by repeated halving. Exact for any decay.

A chunk of L tokens is halved repeatedly. Let s be a token of a left half, and t a token of its right half. The decay
between them is a product of two factors, which meet at the border. Each is at most 1:

    sum_K r_t w_s exp(G(s, t)) = (r_t exp(G(border, t))) . (w_s exp(G(s, border)))

G(s, t) is the sum of the log decays that come between the writing of s and the reading of t. This is one small matrix
product for each pair of halves. Every exponent is a sum of terms that are all <= 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

Scores = list[list[Tensor]]  # [reader][writer] of (M, L, L)


class Level(NamedTuple):
    """All pairs of halves with h tokens: L / 2h pairs in each of M chunks."""

    h: int
    reader: Tensor  # (M, L / 2h, h, K): exp of the sum from the border to token t, for the right halves
    writer: Tensor  # (M, L / 2h, h, K): exp of the sum from token s to the border, for the left halves


class Halving:
    """The decays between the tokens of M chunks.

    Attributes:
        from_start, to_end (M, L, K): from before the chunk to the reading of a token; from its writing to the chunk's
            end.
        whole (M, K, 1): across the whole chunk.
    """

    def __init__(self, log_decay: Tensor, prefix: Tensor):
        """The chunk length L is a power of two.

        Args:
            log_decay: (M, L, K), finite. A token writes after its own decay.
            prefix: (M, L, K), the part of its own log decay after which a token reads. It is overwritten.
        """
        suffix, total = torch.zeros_like(log_decay), log_decay
        M, L, K = log_decay.shape
        self.levels = []
        h = 1
        while h < L:
            right, left = _halves(prefix, h, 1), _halves(suffix, h, 0)  # (M, L / 2h, h, K)
            self.levels.append(Level(h, right.exp(), left.exp()))
            total = total.view(M, -1, 2, K)
            right += total[:, :, :1]
            left += total[:, :, 1:]
            total = total.sum(2)  # (M, L / 2h, K)
            h *= 2
        self.from_start, self.to_end = prefix.exp_(), suffix.exp_()
        self.whole = total.exp().mT

    def scores(self, readers: Sequence[Tensor], writers: Sequence[Tensor]) -> Scores:
        """r_t . w_s times the decays between, for s < t; 0 elsewhere. Readers and writers (M, L, K)."""
        self.readers, self.writers = readers, writers
        M, L, _ = readers[0].shape
        scores = [[r.new_zeros(M, L, L) for _ in writers] for r in readers]
        for level in self.levels:
            reading, writing = self._across(level)
            for row, r in zip(scores, reading, strict=True):
                for score, w in zip(row, writing, strict=True):
                    _pairs(score, level.h).copy_(torch.bmm(r, w.mT).view(M, -1, level.h, level.h))
        return scores

    def add_gradients(
        self,
        dscores: Scores,
        dreaders: Sequence[Tensor],
        dwriters: Sequence[Tensor],
        prefix: Tensor,
        suffix: Tensor,
        dtotal: Tensor,
    ) -> Tensor:
        """Add the gradients of readers and writers that come from the scores. Returns that of the log decays.

        It goes from the whole chunk down to single tokens: gradients of each level's sums, then those of its halves.

        Args:
            dscores: gradients of the scores.
            dreaders, dwriters: (M, L, K) each, to which gradients are added.
            prefix, suffix: (M, L, K), gradients of the logs of `from_start` and `to_end`. They are overwritten: at the
                end, `prefix` is the gradient of the argument `prefix`.
            dtotal: (M, 1, K), the gradient of the log of `whole`.

        Returns:
            (M, L, K), without what comes through the argument `prefix`.
        """
        for level in reversed(self.levels):
            h = level.h
            reading, writing = self._across(level)
            below = [[_pairs(x, h).flatten(0, 1) for x in row] for row in dscores]  # (M L / 2h, h, h)
            # The sums of a right half over both halves contain the total of the left half, and vice versa.
            totals = torch.stack((_halves(prefix, h, 1).sum(2), _halves(suffix, h, 0).sum(2)), 2)  # (M, L / 2h, 2, K)
            dtotal = (totals + dtotal.unsqueeze(2)).flatten(1, 2)  # (M, L / h, K)
            for i, x in enumerate(self.readers):
                into = _sum(torch.bmm(below[i][j], w) for j, w in enumerate(writing)).view_as(level.reader)
                into.mul_(level.reader)
                _halves(dreaders[i], h, 1).add_(into)
                _halves(prefix, h, 1).addcmul_(into, _halves(x, h, 1))
            for j, x in enumerate(self.writers):
                into = _sum(torch.bmm(below[i][j].mT, r) for i, r in enumerate(reading)).view_as(level.writer)
                into.mul_(level.writer)
                _halves(dwriters[j], h, 0).add_(into)
                _halves(suffix, h, 0).addcmul_(into, _halves(x, h, 0))
        return dtotal

    def _across(self, level: Level) -> tuple[list[Tensor], list[Tensor]]:
        """Readers and writers of a level's halves, decayed to the border between them: (M L / 2h, h, K) each."""
        reading = [(_halves(x, level.h, 1) * level.reader).flatten(0, 1) for x in self.readers]
        writing = [(_halves(x, level.h, 0) * level.writer).flatten(0, 1) for x in self.writers]
        return reading, writing


def _halves(x: Tensor, h: int, side: int) -> Tensor:
    """The left (0) or right (1) halves of all blocks of 2h tokens: (M, L, K) -> (M, L / 2h, h, K), a view."""
    M, L, K = x.shape
    return x.view(M, L // (2 * h), 2, h, K)[:, :, side]


def _pairs(scores: Tensor, h: int) -> Tensor:
    """The scores of right halves (rows) with their left halves (columns): (M, L, L) -> (M, L / 2h, h, h), a view."""
    M, L, _ = scores.shape
    blocks = scores.view(M, L // (2 * h), 2, h, L // (2 * h), 2, h)
    return blocks[:, :, 1, :, :, 0].diagonal(dim1=1, dim2=3).movedim(-1, 1)


def _sum(terms: Iterable[Tensor]) -> Tensor:
    """The sum of the terms, in the memory of the first term."""
    return reduce(Tensor.add_, terms)
