"""Learning curves: what a run has logged, a row for every so many steps."""

from __future__ import annotations

import math

import polars as pl

from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.learning_curve import LearningCurve


@MEASURES.function
def learning_curve(spec: LearningCurve, metrics: pl.DataFrame, diverged: bool) -> pl.DataFrame:
    """The table of a run, from its metrics.

    Args:
        metrics: a row a step, from step 1 on.
        diverged: the run ended with the last of them because it had diverged. The row that holds this step is NaN:
            a mean over the steps before would look better than the run is.
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
