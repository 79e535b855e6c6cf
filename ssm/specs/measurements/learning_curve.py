"""Learning curves."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.measurements.base import OfMetrics


class LearningCurve(OfMetrics):
    """Loss, and where there is something to be right accuracy, of the batches of training, by step."""

    table: ClassVar[Schema] = Schema(
        "learning_curve",
        "some steps of training that follow each other: means over their batches, each seen before it is learned from",
        {
            "step": int,  # the last of them; 1 is the first of the run
            "tokens": int,  # seen in this run up to and including that step
            "loss": float,  # nats per token; NaN: the run has diverged here, and there is no row behind this one
            "accuracy": float,  # of a task: share of the answers' tokens that are the most probable ones; null: of text
        },
        keys=("step", "tokens"),
    )
    kind: Literal["learning_curve"] = "learning_curve"
    every: PositiveInt = 10  # steps of which a row is the mean
