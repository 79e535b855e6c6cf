"""Cumulative histograms over the states of a model, by layer."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import torch
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.base.tables import Schema
from ssm.evaluation.inside import own_layers, window_groups
from ssm.evaluation.subject import Subject
from ssm.models.inspect import layer_coefficients
from ssm.specs.measurements.base import OfWindows


def histograms(
    spec: OfWindows, subject: Subject, schema: Schema, number: Callable[[Tensor], Tensor], thresholds: Tensor
) -> pl.DataFrame:
    """The share of states whose number is at most a threshold, by window and layer; layer 0 is all of them.

    Args:
        schema: of sequence, layer, threshold and share.
        number: of every state, from the sizes of its decays over a window: (B, T, H, N) -> (B, H, N).
        thresholds: (X,), ascending.

    Raises:
        CheckpointError: the model's layers are not ssm's own, or none has a decay.
    """
    model = own_layers(subject)
    frames = [pl.DataFrame(schema=schema.columns)]
    for rows, tokens in window_groups(spec, subject):
        found = {
            layer + 1: number(coefficients.A.abs()).flatten(1).double().cpu().expand(len(rows), -1)
            for layer, coefficients in layer_coefficients(model, tokens)
        }  # (B, states) each
        if not found:
            raise CheckpointError("no layer of the model is a linear recurrence: there are no decays")
        found[0] = torch.cat(list(found.values()), 1)
        for layer, numbers in found.items():
            wanted = thresholds.double().expand(len(rows), -1).contiguous()
            count = torch.searchsorted(numbers.sort(-1).values, wanted, right=True)  # (B, X)
            columns = (
                rows.repeat_interleave(len(thresholds)).numpy(),
                layer,
                thresholds.repeat(len(rows)).numpy(),
                (count / numbers.shape[1]).double().flatten().numpy(),
            )
            frames.append(pl.DataFrame(dict(zip(schema.columns, columns, strict=True)), schema=schema.columns))
    return subject.together(pl.concat(frames)).sort(*schema.keys)
