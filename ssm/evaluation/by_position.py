"""Values at the positions of long held-out windows, from the zero state, averaged in bins: in constant memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.tables import Schema
from ssm.evaluation.bins import bin_edges
from ssm.evaluation.stream import Value, segments, token_values
from ssm.evaluation.subject import Subject
from ssm.specs.measurements.base import OfWindows


def by_position(spec: OfWindows, subject: Subject, schema: Schema, value: Value) -> pl.DataFrame:
    """Mean value by sequence and bin of positions; `schema` is one of `binned`."""
    edges = bin_edges(spec.length)  # (bins + 1,)
    windows = subject.windows(spec.sequences, spec.length, spec.seed)
    sums = torch.zeros(spec.sequences, len(edges) - 1, dtype=torch.float64)  # (sequences, bins)
    with subject.progress(spec.sequences, spec.length) as progress:
        for segment in segments(subject, windows, spec.length):
            found = token_values(subject.model, segment.hidden, segment.targets, value)  # (B, S)
            positions = np.arange(segment.start, segment.stop)
            bins = torch.from_numpy(np.searchsorted(edges, positions, side="right") - 1)  # (S,)
            part = torch.zeros(len(segment.rows), sums.shape[1], dtype=torch.float64)
            sums[segment.rows] += part.index_add_(1, bins, found.double().cpu())
            progress.advance(found.numel())
    sums = subject.team.total(sums)  # zero but where a process read
    return binned_table(sums / torch.from_numpy(np.diff(edges)), edges[:-1], edges[1:], schema)


def binned_table(means: Tensor, starts: np.ndarray, stops: np.ndarray, schema: Schema) -> pl.DataFrame:
    """(sequences, bins) means as rows in a schema of `binned`."""
    sequences, bins = means.shape
    columns = (
        np.repeat(np.arange(sequences), bins),
        np.tile(starts, sequences),
        np.tile(stops, sequences),
        means.flatten().numpy(),
    )
    return pl.DataFrame(dict(zip(schema.columns, columns, strict=True)), schema=schema.columns)
