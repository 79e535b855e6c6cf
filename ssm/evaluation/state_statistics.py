"""The state against position: norm of the whole (lg figure 4), norm, mean and std by layer and head (figure 9)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.base.tables import STATE_STATISTICS
from ssm.evaluation.stream import segments
from ssm.evaluation.subject import Subject
from ssm.models.state import State
from ssm.specs.measurement import StateStatistics


def state_statistics(spec: StateStatistics, subject: Subject) -> pl.DataFrame:
    """Statistics after 1, 2, 4, ... tokens and after `length`, in the schema STATE_STATISTICS."""
    positions = sorted({2**i for i in range(spec.length.bit_length()) if 2**i <= spec.length} | {spec.length})
    windows = subject.windows(spec.sequences, spec.length, spec.seed)
    frames = [pl.DataFrame(schema=STATE_STATISTICS.columns)]
    with subject.progress(spec.sequences, spec.length) as progress:
        for segment in segments(subject, windows, spec.length, stops=positions):
            if segment.stop in positions:
                frames += _statistics(segment.state, segment.rows, segment.stop)
            progress.advance(len(segment.rows) * (segment.stop - segment.start))
    return subject.together(pl.concat(frames)).sort("sequence", "position", "layer", "head")


def _statistics(state: State, rows: Tensor, position: int) -> list[pl.DataFrame]:
    flat = [memory.double().flatten(2).cpu() for memory in state.memories()]  # per layer (B, H, elements)
    frames = [
        _frame(layer_flat[:, head], rows, position, layer, head)
        for layer, layer_flat in enumerate(flat)
        for head in range(layer_flat.shape[1])
    ]
    return [*frames, _frame(torch.cat([x.flatten(1) for x in flat], 1), rows, position, -1, -1)]


def _frame(values: Tensor, rows: Tensor, position: int, layer: int, head: int) -> pl.DataFrame:
    """One row a sequence; values (B, elements)."""
    count = len(rows)
    columns = {
        "sequence": rows,
        "position": torch.full((count,), position),
        "layer": torch.full((count,), layer),
        "head": torch.full((count,), head),
        "norm": values.norm(dim=1),
        "mean": values.mean(1),
        "std": values.std(1, correction=0),
    }
    return pl.DataFrame({name: x.numpy() for name, x in columns.items()}, schema=STATE_STATISTICS.columns)
