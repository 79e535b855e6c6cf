"""The loss on the same targets by the number of tokens read before them."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.restarted import restarted
from ssm.specs.measurements.context_loss import ContextLoss


@MEASURES.function
def context_loss(spec: ContextLoss, ctx: EvaluationContext) -> pl.DataFrame:
    """Mean loss over the last quarter of every window, by context, in the schema ContextLoss.table."""
    windows = ctx.windows(spec.sequences, spec.length, spec.seed)
    quarter, contexts = spec.end // 4, spec.contexts
    sums = torch.zeros(spec.sequences, len(contexts), dtype=torch.float64)
    with ctx.progress(spec.sequences, spec.tokens) as progress:
        for column, context in enumerate(contexts):
            block = spec.block(context)
            offsets = np.arange(spec.end - quarter, spec.end, block) - context
            for sequences, _, losses in restarted(ctx, windows, offsets, context, block, progress):
                sums[:, column].index_add_(0, torch.from_numpy(sequences), losses.double().cpu().sum(1))
    sums = ctx.total(sums)
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(spec.sequences), len(contexts)),
            "context": np.tile(contexts, spec.sequences),
            "loss": (sums / quarter).flatten().numpy(),
        },
        schema=ContextLoss.table.columns,
    )
