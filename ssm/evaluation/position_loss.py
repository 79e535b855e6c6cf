"""Position-wise loss (lg Def. 3.1): long held-out windows from the zero state, in constant memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.base.tables import POSITION_LOSS
from ssm.evaluation.bins import bin_edges
from ssm.evaluation.stream import segments, token_losses
from ssm.evaluation.subject import Subject
from ssm.specs.measurement import PositionLoss


def position_loss(spec: PositionLoss, subject: Subject) -> pl.DataFrame:
    """Mean loss by sequence and bin of positions, in the schema POSITION_LOSS."""
    edges = bin_edges(spec.length)  # (bins + 1,)
    windows = subject.windows(spec.sequences, spec.length, spec.seed)
    sums = torch.zeros(spec.sequences, len(edges) - 1, dtype=torch.float64)  # (sequences, bins)
    with subject.progress(spec.sequences, spec.length) as progress:
        for segment in segments(subject, windows, spec.length):
            losses = token_losses(subject.model, segment.hidden, segment.targets)  # (B, S)
            positions = np.arange(segment.start, segment.stop)
            bins = torch.from_numpy(np.searchsorted(edges, positions, side="right") - 1)  # (S,)
            part = torch.zeros(len(segment.rows), sums.shape[1], dtype=torch.float64)
            sums[segment.rows] += part.index_add_(1, bins, losses.double().cpu())
            progress.advance(losses.numel())
    sums = subject.team.total(sums)  # zero but where a process read
    return binned_table(sums / torch.from_numpy(np.diff(edges)), edges[:-1], edges[1:])


def binned_table(losses: torch.Tensor, starts: np.ndarray, stops: np.ndarray) -> pl.DataFrame:
    """(sequences, bins) mean losses as the rows of POSITION_LOSS or RESTART_LOSS, which are alike."""
    sequences, bins = losses.shape
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(sequences), bins),
            "position_from": np.tile(starts, sequences),
            "position_to": np.tile(stops, sequences),
            "loss": losses.flatten().numpy(),
        },
        schema=POSITION_LOSS.columns,
    )
