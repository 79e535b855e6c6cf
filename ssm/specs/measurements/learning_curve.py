"""The spec of learning curves."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.base.schema import Schema
from ssm.specs.measurements.base import OfMetrics


class LearningCurve(OfMetrics):
    """Training loss by step, and for tasks the accuracy."""

    table: ClassVar[Schema] = Schema(
        "learning_curve",
        "consecutive training steps: means over their batches, each measured before the model learns from it",
        {
            "step": int,  # the last of them; the first step of a run is 1
            "tokens": int,  # training tokens of this run up to and including this step
            "loss": float,  # nats per token; NaN: the run diverged here, and this is the last row
            "accuracy": float,  # of tasks: share of answer tokens that are the most probable tokens; null for text
        },
        keys=("step", "tokens"),
    )
    kind: Literal["learning_curve"] = "learning_curve"
    every: PositiveInt = 10  # average over this number of steps
