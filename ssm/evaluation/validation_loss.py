"""The loss on held-out text in blocks of T tokens, each from the zero state, as in training (bn Section 4.1)."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.data.batches import HeldOutWindows
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.stream import segments
from ssm.models.logits import cross_entropy, token_values
from ssm.specs.measurements.validation_loss import ValidationLoss


@MEASURES.function
def validation_loss(spec: ValidationLoss, ctx: EvaluationContext) -> pl.DataFrame:
    """Mean loss of all tokens by sequence, in the schema ValidationLoss.table."""
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    offsets = np.arange(0, spec.length, spec.context)  # (blocks,)
    blocks = HeldOutWindows(windows.split, (windows.positions[:, None] + offsets).flatten(), spec.context)
    sums = torch.zeros(spec.sequences, dtype=torch.float64)
    with ctx.progress(spec.sequences, spec.length) as progress:
        for segment in segments(ctx, blocks, spec.context):
            losses = token_values(ctx.model, segment.hidden, segment.targets, cross_entropy)  # (B, S)
            sums.index_add_(0, segment.rows // len(offsets), losses.double().sum(1).cpu())
            progress.advance(losses.numel())
    means = ctx.total(sums).numpy() / spec.length
    return pl.DataFrame({"sequence": np.arange(spec.sequences), "loss": means}, schema=ValidationLoss.table.columns)
