"""Statistics of the state by position: norm of the whole state (lg figure 4), and of each layer and head (figure 9).

The cache of attention is left out. It grows with every token until its window is full, and nothing in it drifts.
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
from ssm.specs.measurements.state_statistics import StateStatistics


@MEASURES.function
def state_statistics(spec: StateStatistics, ctx: EvaluationContext) -> pl.DataFrame:
    """Statistics at `spec.positions`, in the schema StateStatistics.table.

    Raises:
        CheckpointError: the state of each layer is a cache.
    """
    caches = _caches(ctx.model)
    positions = spec.positions
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    frames = [pl.DataFrame(schema=StateStatistics.table.columns)]
    with ctx.progress(spec.sequences, spec.length) as progress:
        for segment in segments(ctx, windows, spec.length, stops=positions):
            if segment.stop in positions:
                frames.append(_statistics(segment, caches))
            progress.advance(segment.targets.numel())
    return ctx.gather(pl.concat(frames)).sort("sequence", "position", "layer", "head")


def _caches(model: Readable) -> tuple[int, ...]:
    """The layers whose state is a cache.

    Raises:
        CheckpointError: no layer has another state.
    """
    if not isinstance(model, LanguageModel):
        return ()  # its state has only recurrent layers
    if not model.spec.recurrent:
        raise _stateless()
    return model.spec.caches


def _statistics(segment: Segment, caches: tuple[int, ...]) -> pl.DataFrame:
    """The rows of one position, for the whole state and for every head of every layer."""
    of_layers = zip(segment.state.recurrent_layers(), segment.state.recurrent_states(), strict=True)
    by_layer = {layer: state.double().cpu() for layer, state in of_layers if layer not in caches}  # (B, H, ...) each
    if not by_layer:
        raise _stateless()
    states = list(by_layer.values())
    heads = [state.shape[1] for state in states]
    layer = np.repeat([-1, *by_layer], [1, *heads])  # (1 + all heads,)
    head = np.concatenate([[-1], *(np.arange(count) for count in heads)])
    whole = torch.cat([state.flatten(1) for state in states], 1).unsqueeze(1)  # (B, 1, elements)
    parts = [_moments(part) for part in (whole, *(state.reshape(*state.shape[:2], -1) for state in states))]
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
    """Norm, mean and standard deviation of (B, H, elements) over the last axis: (B, H) each."""
    return values.norm(dim=-1), values.mean(-1), values.std(-1, correction=0)


def _stateless() -> CheckpointError:
    return CheckpointError("the model has no recurrent state: the state of each layer is a cache of keys and values")
