"""The memory length of states: the time constant of their decay over a window."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.histograms import histograms
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.memory_length import OCTAVES, MemoryLength


@MEASURES.function
def memory_length(spec: MemoryLength, ctx: EvaluationContext) -> pl.DataFrame:
    """Cumulative histogram of -1 / (mean of log A_t), in the schema MemoryLength.table. Raises like `histograms`.

    The memory length is infinite with a decay of exactly 1, and zero with a decay of 0.
    """
    return histograms(spec, ctx, {"share": _tokens}, 2 ** torch.arange(OCTAVES + 1))


def _tokens(sizes: Tensor) -> Tensor:
    """(B, T, H, N) -> (B, H, N)."""
    return 1 / sizes.double().log().mean(1).clamp_max(0.0).abs()
