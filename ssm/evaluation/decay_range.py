"""How far the decay of every state ranges over a window (bn figure 6)."""

from __future__ import annotations

import polars as pl
import torch

from ssm.base.tables import DECAY_RANGE
from ssm.evaluation.histograms import histograms
from ssm.evaluation.subject import Subject
from ssm.specs.measurements import DecayRange
from ssm.specs.measurements.decay_range import THRESHOLDS


def decay_range(spec: DecayRange, subject: Subject) -> pl.DataFrame:
    """A_max - A_min as a cumulative histogram, in the schema DECAY_RANGE. Raises as `histograms`."""
    thresholds = torch.arange(THRESHOLDS + 1, dtype=torch.float64) / THRESHOLDS
    return histograms(spec, subject, DECAY_RANGE, lambda sizes: sizes.amax(1) - sizes.amin(1), thresholds)
