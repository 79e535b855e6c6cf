"""How far the decay of every state ranges over a window (bn figure 6)."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.base.tables import DECAY_RANGE
from ssm.evaluation.inside import own_layers, window_groups
from ssm.evaluation.subject import Subject
from ssm.models.inspect import layer_coefficients
from ssm.specs.measurements import DecayRange
from ssm.specs.measurements.decay_range import THRESHOLDS


def decay_range(spec: DecayRange, subject: Subject) -> pl.DataFrame:
    """A cumulative histogram by window and layer, in the schema DECAY_RANGE.

    Raises:
        CheckpointError: the model's layers are not ssm's own, or none has a decay.
    """
    model = own_layers(subject)
    thresholds = torch.arange(THRESHOLDS + 1, dtype=torch.float64) / THRESHOLDS  # (X,)
    frames = [pl.DataFrame(schema=DECAY_RANGE.columns)]
    for rows, tokens in window_groups(spec, subject):
        ranges = {number + 1: found.decay_range(len(rows)) for number, found in layer_coefficients(model, tokens)}
        if not ranges:
            raise CheckpointError("no layer of the model is a linear recurrence: there are no decays")
        ranges[0] = torch.cat(list(ranges.values()), 1)
        frames += [_histogram(rows, layer, found.double().cpu(), thresholds) for layer, found in ranges.items()]
    return subject.together(pl.concat(frames)).sort("sequence", "layer", "threshold")


def _histogram(rows: Tensor, layer: int, ranges: Tensor, thresholds: Tensor) -> pl.DataFrame:
    """The rows of one layer; ranges (B, states)."""
    share = torch.searchsorted(ranges.sort(-1).values, thresholds.expand(len(rows), -1).contiguous(), right=True)
    columns = {
        "sequence": rows.repeat_interleave(len(thresholds)).numpy(),
        "layer": layer,
        "threshold": thresholds.repeat(len(rows)).numpy(),
        "share": (share / ranges.shape[1]).double().flatten().numpy(),
    }
    return pl.DataFrame(columns, schema=DECAY_RANGE.columns)
