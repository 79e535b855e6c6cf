"""The range of the decays over a window, by state and by channel (bn figure 6)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.histograms import histograms
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.decay_range import THRESHOLDS, DecayRange


@MEASURES.function
def decay_range(spec: DecayRange, ctx: EvaluationContext) -> pl.DataFrame:
    """Cumulative histograms of A_max - A_min, in the schema DecayRange.table. Raises like `histograms`."""
    thresholds = torch.arange(THRESHOLDS + 1, dtype=torch.float64) / THRESHOLDS
    return histograms(spec, ctx, {"share": _of_states, "channel_share": _of_channels}, thresholds)


def _of_states(sizes: Tensor) -> Tensor:
    """(B, T, H, N) -> (B, H, N): range over tokens."""
    return sizes.amax(1) - sizes.amin(1)


def _of_channels(sizes: Tensor) -> Tensor:
    """(B, T, H, N) -> (B, H): range over tokens and states of a channel, as in bn Theorems 3.1 and 4.2."""
    return sizes.amax((1, 3)) - sizes.amin((1, 3))
