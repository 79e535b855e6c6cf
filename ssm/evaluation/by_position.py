"""Means by bins of positions in long held-out windows, from the zero state, in constant memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.bins import bin_edges
from ssm.base.schema import Schema
from ssm.data.batches import ShuffledWindows
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.stream import segments
from ssm.models.logits import Value, token_values
from ssm.specs.measurements.base import OfWindows


def by_position(spec: OfWindows, ctx: EvaluationContext, value: Value, shuffled: int | None = None) -> pl.DataFrame:
    """Mean value by sequence and bin of positions, in the table of `spec`, which is from `binned`.

    Args:
        value: the value of a target.
        shuffled: size of the chunks that windows exchange, in tokens. A value counts for the window of its target.
    """
    edges = bin_edges(spec.length)  # (bins + 1,)
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    if shuffled is not None:
        windows = ShuffledWindows(windows.split, windows.positions, windows.length, shuffled)
    sums = torch.zeros(spec.sequences, len(edges) - 1, dtype=torch.float64)  # (sequences, bins)
    with ctx.progress(spec.sequences, spec.length) as progress:
        for segment in segments(ctx, windows, spec.length):
            values = token_values(ctx.model, segment.hidden, segment.targets, value)  # (B, S)
            positions = np.arange(segment.start, segment.stop)
            bins = np.searchsorted(edges, positions, side="right") - 1  # (S,)
            places = windows.windows_at(segment.rows.numpy(), positions) * sums.shape[1] + bins  # (B, S)
            part = torch.zeros_like(sums)
            part.view(-1).index_add_(0, torch.from_numpy(places.flatten()), values.double().cpu().flatten())
            sums += part
            progress.advance(values.numel())
    sums = ctx.total(sums)
    return binned_table(sums / torch.from_numpy(np.diff(edges)), edges[:-1], edges[1:], spec.table)


def binned_table(means: Tensor, starts: np.ndarray, stops: np.ndarray, schema: Schema) -> pl.DataFrame:
    """Means (sequences, bins) as rows, in a schema from `binned`."""
    sequences, bins = means.shape
    columns = (
        np.repeat(np.arange(sequences), bins),
        np.tile(starts, sequences),
        np.tile(stops, sequences),
        means.flatten().numpy(),
    )
    return pl.DataFrame(dict(zip(schema.columns, columns, strict=True)), schema=schema.columns)
