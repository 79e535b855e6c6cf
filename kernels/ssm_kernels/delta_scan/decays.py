"""Scores between the tokens of a chunk, with decays per head or per key, and their gradients.

Every read comes before the decay of its own step. So the decay from token s to a later token t is that of the steps
strictly between them. The decay from the chunk's start to t is that of the steps before t. The decay from s to the
chunk's end is that of the steps after s. As in `gated_scan`, there is no division by a decay and no difference of sums.
Log decays must be finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ssm_kernels.halving import Halving, Scores

Gradients = tuple[list[Tensor], list[Tensor], Tensor]  # of readers, of writers (M, L, K), and of log decays


class ScalarDecay:
    """One decay per head and step: matrix products times the decays of all pairs."""

    def __init__(self, log_decay: Tensor):
        """log_decay (M, L, 1), or (1, L, 1) if it is the same for all chunks."""
        L = log_decay.shape[1]
        sums, mask = _pair_sums(L, log_decay.dtype, log_decay.device)
        decay = torch.addmm(mask, log_decay.squeeze(-1), sums).exp_().view(-1, L + 1, L + 1)
        self.decay = decay  # (M, L + 1, L + 1): to token t, or the end, from the start, or after token s - 1
        self.from_start = decay[:, :-1, :1]  # (M, L, 1)
        self.to_end = decay[:, -1, 1:, None]  # (M, L, 1)
        self.whole = decay[:, -1:, :1]  # (M, 1, 1)
        self.between = decay[:, :-1, 1:]  # (M, L, L): 0 on and above the diagonal

    def scores(self, readers: Sequence[Tensor], writers: Sequence[Tensor]) -> Scores:
        """r_t . w_s times the decay between, for s < t; 0 elsewhere. Readers and writers (M, L, K)."""
        self.readers, self.writers = readers, writers
        self.scored = [[torch.bmm(r, w.mT).mul_(self.between) for w in writers] for r in readers]
        return self.scored

    def backward(self, dscores: Scores, start: Tensor, end: Tensor, whole: Tensor) -> Gradients:
        """From the gradients of the scores, and those of the logs of `from_start`, `to_end` (M, L, K) and `whole`."""
        dlog = start.new_zeros(start.shape[0], *self.decay.shape[1:])  # (M, L + 1, L + 1)
        dreaders, dwriters = ([torch.zeros_like(x) for x in given] for given in (self.readers, self.writers))
        for i, row in enumerate(dscores):
            for j, dscore in enumerate(row):
                dlog[:, :-1, 1:].addcmul_(dscore, self.scored[i][j])
                dscore = dscore * self.between
                dreaders[i].baddbmm_(dscore, self.writers[j])
                dwriters[j].baddbmm_(dscore.mT, self.readers[i])
        dlog[:, :-1, 0] = start.sum(-1)
        dlog[:, -1, 1:] = end.sum(-1)
        dlog[:, -1, 0] = whole.sum((-1, -2))
        sums, _ = _pair_sums(start.shape[1], start.dtype, start.device)
        return dreaders, dwriters, (dlog.flatten(1) @ sums.t()).unsqueeze(-1)


class VectorDecay(Halving):
    """One decay per key and step, by repeated halving. The chunk length is a power of two."""

    def __init__(self, log_decay: Tensor):
        """log_decay (M, L, K)."""
        super().__init__(log_decay, torch.zeros_like(log_decay))

    def backward(self, dscores: Scores, start: Tensor, end: Tensor, whole: Tensor) -> Gradients:
        """As that of ScalarDecay. `start` and `end` are overwritten."""
        dreaders, dwriters = ([torch.zeros_like(x) for x in given] for given in (self.readers, self.writers))
        return dreaders, dwriters, self.add_gradients(dscores, dreaders, dwriters, start, end, whole.mT)


@lru_cache(maxsize=4)
@torch.inference_mode(False)  # also usable for training if made during inference
def _pair_sums(L: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """A constant matrix that sums the log decays of every pair of tokens, and its mask.

    Column (t, s) of `sums` (L, (L + 1)^2) is 1 at the steps s <= i < t, else 0. A row of log decays times this matrix
    gives the log decays between two places: after token s - 1 (or the chunk's start), and before token t (or the
    chunk's end). `mask` (1, (L + 1)^2) is -inf if token s - 1 does not come before t.
    """
    t, s, i = torch.arange(L + 1)[:, None, None], torch.arange(L + 1)[None, :, None], torch.arange(L)[None, None, :]
    sums = ((s <= i) & (i < t)).to(dtype).view(-1, L).t().contiguous()  # (L, (L + 1)^2)
    mask = torch.zeros(L + 1, L + 1, dtype=dtype).masked_fill((s > t).squeeze(-1), float("-inf")).view(1, -1)
    return sums.to(device), mask.to(device)
