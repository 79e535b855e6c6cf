"""Learning curves: averages of the metrics that a run logged."""

from __future__ import annotations

import math

import polars as pl

from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.learning_curve import LearningCurve


@MEASURES.function
def learning_curve(spec: LearningCurve, metrics: pl.DataFrame, diverged: bool) -> pl.DataFrame:
    """Average the metrics over `spec.every` steps, in the schema LearningCurve.table.

    Args:
        metrics: one row for each step, from step 1 on.
        diverged: whether the run ended with the last step because it diverged. The row with this step is then NaN,
            because a mean over the steps before would hide the divergence.
    """
    if "accuracy" not in metrics.columns:
        metrics = metrics.with_columns(accuracy=pl.lit(None, pl.Float64))
    last = metrics["step"].max()
    group = (pl.col("step") - 1) // spec.every
    rows = metrics.group_by(group.alias("group"), maintain_order=True).agg(
        pl.col("step", "tokens").max(), pl.col("loss", "accuracy").mean()
    )
    if diverged:
        broken = pl.when(pl.col("step") == last).then(math.nan)
        rows = rows.with_columns(
            broken.otherwise(pl.col("loss")).alias("loss"),
            pl.when(pl.col("accuracy").is_not_null()).then(broken.otherwise(pl.col("accuracy"))).alias("accuracy"),
        )
    return rows.select(list(LearningCurve.table.columns))
