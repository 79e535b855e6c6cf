"""Effective Remembrance (lg Def. 3.3): how much the output depends on the tokens before the last T - t."""

from __future__ import annotations

import math

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.base.bins import bin_edges
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.stream import segments
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance


@MEASURES.function
def effective_remembrance(spec: EffectiveRemembrance, ctx: EvaluationContext) -> pl.DataFrame:
    """d(q(.|x_0:T), q(.|x_t:T)) by sequence, t and distance, in the schema EffectiveRemembrance.table.

    The values of T - t are the edges of the position bins, so t is dense near T.
    """
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    kept = [int(edge) for edge in bin_edges(spec.length)[1:]]
    frames = [pl.DataFrame(schema=EffectiveRemembrance.table.columns)]
    with ctx.progress(spec.sequences, sum(kept) + spec.length) as progress:
        full = torch.empty(spec.sequences, ctx.model.vocab_size, dtype=torch.float64)  # (sequences, V)
        for segment in segments(ctx, windows, spec.length):
            if segment.stop == spec.length:
                full[segment.rows] = _probabilities(ctx, segment.hidden[:, -1])
            progress.advance(segment.targets.numel())
        for t in (spec.length - length for length in kept):
            for segment in segments(ctx, windows, spec.length, start=t):
                progress.advance(segment.targets.numel())
                if segment.stop < spec.length:
                    continue
                rows, recent = segment.rows, _probabilities(ctx, segment.hidden[:, -1])  # (B, V)
                frames += [
                    _rows(rows, t, spec.length, name, distance(full[rows], recent))
                    for name, distance in DISTANCES.items()
                ]
    return ctx.gather(pl.concat(frames)).sort("distance", "t", "sequence")


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """1/2 sum |p - q| (lg eq. 3), in [0, 1]; p and q (..., V)."""
    return 0.5 * (p - q).abs().sum(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """The Jensen-Shannon divergence in bits, in [0, 1]."""
    middle = 0.5 * (p + q)
    return 0.5 * (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / math.log(2)


def one_minus_cosine(p: Tensor, q: Tensor) -> Tensor:
    """1 - cosine similarity (lg Appendix G), in [0, 1] for probabilities."""
    return 1 - F.cosine_similarity(p, q, dim=-1)


DISTANCES = {
    "total_variation": total_variation,
    "jensen_shannon": jensen_shannon,
    "one_minus_cosine": one_minus_cosine,
}


def _relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def _probabilities(ctx: EvaluationContext, hidden: Tensor) -> Tensor:
    """(B, D) -> (B, V), in float64 on the CPU, because distances subtract close numbers."""
    with torch.inference_mode():
        return ctx.model.logits(hidden).double().softmax(-1).cpu()


def _rows(rows: Tensor, t: int, length: int, name: str, values: Tensor) -> pl.DataFrame:
    same = ([value] * len(rows) for value in (t, length, name))  # polars turns a single value into a lazy query
    columns = (rows.numpy(), *same, values.numpy())
    schema = EffectiveRemembrance.table.columns
    return pl.DataFrame(dict(zip(schema, columns, strict=True)), schema)
