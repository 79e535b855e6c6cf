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
from ssm.specs.measurements.state_statistics import StateStatistics


@MEASURES.function
def state_statistics(spec: StateStatistics, ctx: EvaluationContext) -> pl.DataFrame:
    """Statistics at `spec.positions`, in the schema StateStatistics.table.

    Raises:
        CheckpointError: the state of each layer is a cache.
    """
    caches = ctx.model.spec.caches if isinstance(ctx.model, LanguageModel) else ()  # other states have no caches
    positions = spec.positions
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    frames = [pl.DataFrame(schema=StateStatistics.table.columns)]
    with ctx.progress(spec.sequences, spec.length) as progress:
        for segment in segments(ctx, windows, spec.length, stops=positions):
            if segment.stop in positions:
                frames.append(_statistics(segment, caches))
            progress.advance(segment.targets.numel())
    return ctx.gather(pl.concat(frames)).sort("sequence", "position", "layer", "head")


def _statistics(segment: Segment, caches: tuple[int, ...]) -> pl.DataFrame:
    """The rows of one position, for the whole state and for every head of every layer.

    Only one layer at a time has a copy in float64, because all states together can fill half of the memory.

    Args:
        caches: layers that are left out.

    Raises:
        CheckpointError: no layer remains.
    """
    by_layer = []  # moments of the heads of each layer, (B, H) each
    layers, heads, sizes = [-1], [-1], list[int]()
    of_layers = zip(segment.state.recurrent_layers(), segment.state.recurrent_states(), strict=True)
    for layer, state in of_layers:
        if layer not in caches:
            H, elements = state.shape[1], state[0, 0].numel()
            layers += [layer] * H
            heads += range(H)
            sizes += [elements] * H
            by_layer.append(_moments(state.double().cpu().reshape(len(state), H, elements)))
    if not by_layer:
        raise CheckpointError("the model has no recurrent state: the state of each layer is a cache of keys and values")
    norms, means, stds = (torch.cat(columns, 1) for columns in zip(*by_layer, strict=True))  # (B, all heads) each
    whole = _combined(norms, means, stds, torch.tensor(sizes, dtype=torch.float64))
    both = zip(whole, (norms, means, stds), strict=True)
    norm, mean, std = (torch.cat(columns, 1).flatten().numpy() for columns in both)
    rows = len(segment.rows)
    return pl.DataFrame(
        {
            "sequence": np.repeat(segment.rows.numpy(), len(layers)),
            "position": np.full(rows * len(layers), segment.stop),
            "layer": np.tile(layers, rows),
            "head": np.tile(heads, rows),
            "norm": norm,
            "mean": mean,
            "std": std,
        },
        schema=StateStatistics.table.columns,
    )


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm, mean and standard deviation of (B, H, elements) over the last axis: (B, H) each."""
    return values.norm(dim=-1), values.mean(-1), values.std(-1, correction=0)


def _combined(norm: Tensor, mean: Tensor, std: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm, mean and standard deviation of all elements together, (B, 1) each, from those of parts.

    Args:
        norm, mean, std: (B, parts).
        sizes: number of elements of each part, (parts,).
    """
    shares = sizes / sizes.sum()
    center = (shares * mean).sum(1, keepdim=True)
    variance = (shares * (std.square() + (mean - center).square())).sum(1, keepdim=True)
    return norm.norm(dim=1, keepdim=True), center, variance.sqrt()
