"""The state against position: norm of the whole (lg figure 4), norm, mean and std by layer and head (figure 9).

The cache of attention without a window is no part of it: it grows with every token, and nothing in it drifts.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.stream import Segment, segments
from ssm.models.backbone import LanguageModel
from ssm.models.readable import Readable
from ssm.models.repairs.base import Reading
from ssm.specs.measurements.state_statistics import StateStatistics


@MEASURES.function
def state_statistics(spec: StateStatistics, ctx: EvaluationContext) -> pl.DataFrame:
    """Statistics after 1, 2, 4, ... tokens and after `length`, in the schema StateStatistics.table.

    Raises:
        CheckpointError: the model carries keys and values of every token, and nothing else.
    """
    endless = _endless(ctx.model)
    positions = sorted({2**i for i in range(spec.length.bit_length()) if 2**i <= spec.length} | {spec.length})
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    frames = [pl.DataFrame(schema=StateStatistics.table.columns)]
    with ctx.progress(spec.sequences, spec.length) as progress:
        for segment in segments(ctx, windows, spec.length, stops=positions):
            if segment.stop in positions:
                frames.append(_statistics(segment, endless))
            progress.advance(segment.targets.numel())
    return ctx.together(pl.concat(frames)).sort("sequence", "position", "layer", "head")


def _endless(model: Readable) -> tuple[int, ...]:
    """The layers, among those with a memory, that carry no state of fixed size.

    Raises:
        CheckpointError: all are such.
    """
    read = model.model if isinstance(model, Reading) else model
    if not isinstance(read, LanguageModel):
        return ()  # its memories are those of fixed size
    if len(read.spec.endless) == read.spec.n_layers:
        raise _stateless()
    return read.spec.endless


def _statistics(segment: Segment, endless: tuple[int, ...]) -> pl.DataFrame:
    """The rows of one position: of the whole state, and of every head of every layer."""
    states_of = zip(segment.state.recurrent_layers(), segment.state.recurrent_states(), strict=True)
    found = {layer: memory for layer, memory in states_of if layer not in endless}
    if not found:
        raise _stateless()
    recurrent_states = [memory.double().cpu() for memory in found.values()]  # (B, H, ...) each
    heads = [memory.shape[1] for memory in recurrent_states]
    layer = np.repeat([-1, *found], [1, *heads])  # (1 + all heads,)
    head = np.concatenate([[-1], *(np.arange(count) for count in heads)])
    whole = torch.cat([memory.flatten(1) for memory in recurrent_states], 1).unsqueeze(1)  # (B, 1, elements)
    parts = [
        _moments(part) for part in (whole, *(memory.reshape(*memory.shape[:2], -1) for memory in recurrent_states))
    ]
    norm, mean, std = (torch.cat(columns, 1).flatten().numpy() for columns in zip(*parts, strict=True))
    rows = len(segment.rows)
    return pl.DataFrame(
        {
            "sequence": np.repeat(segment.rows.numpy(), len(layer)),
            "position": np.full(rows * len(layer), segment.stop),
            "layer": np.tile(layer, rows),
            "head": np.tile(head, rows),
            "norm": norm,
            "mean": mean,
            "std": std,
        },
        schema=StateStatistics.table.columns,
    )


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm, mean and standard deviation of (B, H, elements) over its last axis: (B, H) each."""
    return values.norm(dim=-1), values.mean(-1), values.std(-1, correction=0)


def _stateless() -> CheckpointError:
    return CheckpointError("the model has no recurrent state of fixed size: it keeps keys and values of every token")
