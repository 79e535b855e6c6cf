"""The loss by position in long held-out windows, from the zero state, in constant memory (lg Def. 3.1)."""

from __future__ import annotations

import polars as pl

from ssm.evaluation.by_position import by_position
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.models.logits import cross_entropy
from ssm.specs.measurements.position_loss import PositionLoss


@MEASURES.function
def position_loss(spec: PositionLoss, ctx: EvaluationContext) -> pl.DataFrame:
    """Mean loss by sequence and bin of positions, in the schema PositionLoss.table."""
    return by_position(spec, ctx, cross_entropy, spec.shuffled)
