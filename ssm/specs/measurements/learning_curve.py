"""Learning curves."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from ssm.specs.measurements.base import OfMetrics


class LearningCurve(OfMetrics):
    """Loss, and where there is something to be right accuracy, of the batches of training, by step."""

    kind: Literal["learning_curve"] = "learning_curve"
    every: PositiveInt = 10  # steps of which a row is the mean
