"""What is left of a state after more tokens."""

from __future__ import annotations

import math

import polars as pl
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.inside import own_layers, window_groups
from ssm.evaluation.registry import MEASURES
from ssm.models.inspect import retained_shares
from ssm.specs.measurements.state_retention import StateRetention

SMALLEST = 1e-6  # smaller shares count as this one: float32 rounding hides them


@MEASURES.function
def state_retention(spec: StateRetention, ctx: EvaluationContext) -> pl.DataFrame:
    """What is left of a state, in the schema StateRetention.table.

    Raises:
        CheckpointError: the layers are not ssm's own, or none has a recurrent state.
    """
    model, half = own_layers(spec, ctx), spec.length // 2
    table = StateRetention.table
    frames = [pl.DataFrame(schema=table.columns)]
    for rows, tokens in window_groups(spec, ctx):
        by_layer = {
            number + 1: shares for number, shares in retained_shares(model, *tokens[:, : 2 * half].split(half, 1))
        }
        by_layer[0] = torch.cat(list(by_layer.values()), 1)  # all heads of all layers
        for layer, shares in by_layer.items():
            columns = (rows.numpy(), layer, *(part.cpu().numpy() for part in _summary(shares)))
            frames.append(pl.DataFrame(dict(zip(table.columns, columns, strict=True)), schema=table.columns))
    return ctx.gather(pl.concat(frames)).sort(*table.keys)


def _summary(shares: Tensor) -> tuple[Tensor, Tensor]:
    """The mean logarithm of shares (B, H), and the share of heads with at most 1/e: (B,) each. NaN stays NaN."""
    forgetting = torch.where(shares.isnan(), shares, (shares <= math.exp(-1)).to(shares.dtype))
    return shares.clamp_min(SMALLEST).log().mean(1), forgetting.mean(1)
