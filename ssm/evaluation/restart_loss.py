"""The loss on the same targets when the model restarts T/2 to T tokens before each of them.

The paired ratio exp(position_loss - restart_loss) compares the model with a long history to the model inside its
training context, on the same targets. So differences in the difficulty of the text cancel.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.base.bins import bin_edges
from ssm.evaluation.by_position import binned_table
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.restarted import restarted
from ssm.specs.measurements.restart_loss import RestartLoss, octaves


@MEASURES.function
def restart_loss(spec: RestartLoss, ctx: EvaluationContext) -> pl.DataFrame:
    """Mean loss by sequence and bin, in the schema RestartLoss.table.

    The bins are [3/4 kT, kT), k = 1, 2, 4 ... With `everywhere`, they are the bins of position_loss in [T/2, length).
    """
    half = spec.context // 2
    starts, stops = _bins(spec)
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    pieces = _restarts(spec)
    sums = torch.zeros(spec.sequences, len(starts), dtype=torch.float64)
    with ctx.progress(spec.sequences, sum(len(offsets) * length for offsets, length in pieces)) as progress:
        for offsets, length in pieces:
            # The first half is read, the second half is scored.
            for sequences, targets, losses in restarted(ctx, windows, offsets, half, length - half, progress):
                bins = np.searchsorted(starts, targets, side="right") - 1  # (B, S)
                inside = torch.from_numpy(bins >= 0)  # excludes [T/2, 3/4 T), if the first bin begins at 3/4 T
                places = torch.from_numpy(sequences[:, None] * len(starts) + bins)
                sums.view(-1).index_add_(0, places[inside], losses.double().cpu()[inside])
    sums = ctx.total(sums)
    return binned_table(sums / torch.from_numpy(stops - starts), starts, stops, RestartLoss.table)


def _bins(spec: RestartLoss) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops of the bins: (bins,) int64 each."""
    if spec.everywhere:
        edges = bin_edges(spec.length)
        edges = edges[edges >= spec.context // 2]
        return edges[:-1], edges[1:]
    ends = spec.context * np.array(octaves(spec.context, spec.length), dtype=np.int64)
    return ends * 3 // 4, ends


def _restarts(spec: RestartLoss) -> list[tuple[np.ndarray, int]]:
    """Positions of restarts in a sequence, (windows,) int64, and the number of tokens to read from there.

    Restarts are T/2 apart, and T tokens are read from each. The second half has the targets. The last window ends with
    the sequence.
    """
    context, half = spec.context, spec.context // 2
    if not spec.everywhere:
        # In units of T/2: targets from 3/2 k on (for k = 1 from 1), scored by the window that starts one unit before.
        numbers = [number for k in octaves(context, spec.length) for number in range(max(1, 3 * k // 2) - 1, 2 * k - 1)]
        return [(half * np.array(numbers, dtype=np.int64), context)]
    whole, rest = divmod(max(0, spec.length - half), half)
    last = [(np.array([half * whole]), half + rest)] if rest else []
    return [(half * np.arange(whole), context), *last]
